"""The body of a call: an SDP offer alone, or beside a session in multipart; what of it is refused, and why."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from antiphon.realtime.errors import BadRequest, TooBig, WrongMedia
from antiphon.realtime.protocol.schema import Json, check_session

MAX_BODY = 1 << 20
MAX_SECTIONS = 8
"""Media sections in an offer: unbundled, each would take sockets of its own."""
MAX_CANDIDATES = 100
"""Addresses of a caller: each is called, from every socket."""
_MDNS = re.compile(r"^a=candidate:.*\.local .*\r?\n", re.MULTILINE)
_BUNDLE = re.compile(r"^a=group:BUNDLE.*\r?\n", re.MULTILINE)
_END = re.compile(r"^a=end-of-candidates\r?\n", re.MULTILINE)


async def read(request: Request) -> tuple[str, Json | None]:
    """(SDP, session or None). Raises ``BadRequest`` and ``ProtocolError``."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise TooBig("The body is larger than 1 MiB.", code="request_too_large")
    if kind == "multipart/form-data":
        return await _multipart(request)
    if kind not in ("application/sdp", "text/plain", ""):
        raise WrongMedia("Send the offer as application/sdp, or as multipart/form-data with the parts 'sdp' and 'session'.")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise TooBig("The body is larger than 1 MiB.", code="request_too_large")
    return checked(body.decode("utf-8", "replace")), None


async def _multipart(request: Request) -> tuple[str, Json | None]:
    try:
        async with request.form(max_files=2, max_fields=8, max_part_size=MAX_BODY) as form:
            parts = {name: await _text(part) for name, part in form.items()}
    except MultiPartException as error:
        raise BadRequest(f"Could not read the form: {error.message}.", code="invalid_value") from None
    if "sdp" not in parts:
        raise BadRequest("Missing required parameter: 'sdp'.", code="missing_required_parameter", param="sdp")
    session = None
    if parts.get("session", "").strip():
        try:
            session = msgspec.json.decode(parts["session"])
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequest("Invalid 'session': it is not JSON.", code="invalid_json", param="session") from None
        session = check_session(session)
    return checked(parts["sdp"]), session


async def _text(part: str | UploadFile) -> str:
    return part if isinstance(part, str) else (await part.read()).decode("utf-8", "replace")


def checked(sdp: str) -> str:
    """The offer, less what would only be waited for. Raises ``BadRequest`` with what is wrong with it."""
    if not sdp.lstrip().startswith("v=0"):
        raise _bad("The offer is not SDP.")
    section = _section(sdp, "audio")
    if section is None:
        raise _bad("The offer has no audio: one audio section, sendrecv, with Opus is needed.")
    if not re.search(r"^a=rtpmap:\d+ opus/48000", section, re.MULTILINE | re.IGNORECASE):
        raise _bad("The offer's audio has no Opus, the only codec of this door.")
    if re.search(r"^a=(sendonly|inactive)\s*$", section, re.MULTILINE):
        raise _bad("The offer's audio cannot receive, so no answer could be heard: make it sendrecv.")
    if not re.search(r"^a=fingerprint:sha-(256|384|512) \S", sdp, re.MULTILINE | re.IGNORECASE):
        raise _bad("The offer has no fingerprint of a certificate by sha-256, so nothing could be encrypted.")
    if len(_sections(sdp)) > MAX_SECTIONS:
        raise _bad(f"The offer has more than {MAX_SECTIONS} media sections; one for audio and one for data are used.")
    if len(re.findall(r"^a=candidate:", sdp, re.MULTILINE)) > MAX_CANDIDATES:
        raise _bad(f"The offer has more than {MAX_CANDIDATES} candidates.")
    # Names of the multicast DNS hide a browser's addresses. They need no resolving: the browser calls, and is seen then.
    hidden = _MDNS.sub("", sdp)
    return _END.sub("", hidden) if hidden != sdp else sdp


def has_channel(sdp: str) -> bool:
    """Whether the caller will open data channels."""
    return _section(sdp, "application") is not None


def bundled(sdp: str) -> bool:
    """Whether the caller can take all media over one transport (RFC 9143)."""
    return _BUNDLE.search(sdp) is not None


def unbundled(answer: str) -> str:
    """The answer to an offer that knows no bundle: aiortc writes one into every answer."""
    return _BUNDLE.sub("", answer)


def _section(sdp: str, kind: str) -> str | None:
    """The first media section of a kind, unless it is switched off."""
    for section in _sections(sdp):
        if section.startswith(f"m={kind} "):
            off = section.startswith(f"m={kind} 0 ") and "a=bundle-only" not in section
            return None if off else section
    return None


def _sections(sdp: str) -> list[str]:
    """Every media section, from its m-line on."""
    return re.split(r"^(?=m=)", sdp, flags=re.MULTILINE)[1:]


def _bad(message: str) -> BadRequest:
    return BadRequest(message, code="invalid_offer", param="sdp")


def unparsed(error: Any) -> BadRequest:
    """For what only the WebRTC library found wrong with the offer; its words are for developers, and kept short."""
    detail = str(error).split("\n")[0][:120]
    return _bad(f"The offer cannot be answered{f': {detail}' if detail else ''}.")
