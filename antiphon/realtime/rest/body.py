"""Reading a request's body within a limit: the count stops the reading, whatever Content-Length says."""

from __future__ import annotations

import logging

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from antiphon.realtime.errors import BadRequest, ClientGone, TooBig, Unavailable, WrongMedia

log = logging.getLogger("antiphon.rest")

FORM_ROOM = 1 << 20
"""Bytes of a form beside its file."""


async def read(request: Request, limit: int) -> bytes:
    """The whole body. Raises ``TooBig``, ``WrongMedia``, ``ClientGone``."""
    _check_encoding(request)
    _check_declared(request, limit)
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > limit:
                raise _too_big(limit)
    except ClientDisconnect:
        raise ClientGone("the client has closed its connection") from None
    return bytes(data)


async def read_form(request: Request, limit: int) -> FormData:
    """A multipart form; files larger than 1 MB wait on disk. Raises ``WrongMedia``, ``TooBig``, ``BadRequest``,
    ``Unavailable`` (no room there)."""
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        raise WrongMedia(
            f"Expected multipart/form-data with a 'file', not {content_type[:80] or 'a body without Content-Type'}.",
            code="invalid_content_type",
        )
    _check_encoding(request)
    _check_declared(request, limit + FORM_ROOM)
    counted = Request(request.scope, _counted(request.receive, limit + FORM_ROOM))
    try:
        return await counted.form(max_files=4, max_fields=200, max_part_size=FORM_ROOM)
    except ClientDisconnect:
        raise ClientGone("the client has closed its connection") from None
    except (MultiPartException, MultipartParseError, HTTPException, KeyError, UnicodeDecodeError) as error:
        detail = getattr(error, "message", None) or getattr(error, "detail", "")
        raise BadRequest(f"The multipart form cannot be read. {detail}".strip(), code="invalid_form") from None
    except OSError as error:
        log.error("no file can be taken in: %s", error.strerror)
        busy = "The server has no room for files of more than 1 MB now; please retry later."
        raise Unavailable(busy, code="server_busy", retry_after_s=30.0) from None


def _check_encoding(request: Request) -> None:
    """A compressed body is refused as such: unpacked, its size would not be what was counted."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise WrongMedia(
            f"The body must not be compressed; its Content-Encoding is {encoding[:40]}.", code="unsupported_content_encoding"
        )


def _check_declared(request: Request, limit: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_big(limit)


def _counted(receive: Receive, limit: int) -> Receive:
    total = 0

    async def counting() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise _too_big(limit)
        return message

    return counting


def _too_big(limit: int) -> TooBig:
    return TooBig(f"The request is larger than the limit of {limit} bytes.", code="request_too_large")
