"""An id for every HTTP request: the client's ``X-Request-Id`` if it gives one, else a new one; always in the answer."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antiphon.realtime import refusals
from antiphon.realtime.errors import BadRequest

HEADER = "X-Request-Id"
_FORM = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def checked(request_id: str, param: str) -> str:
    """The id, if it can stand in a header and a log line; raises ``BadRequest``."""
    if not _FORM.fullmatch(request_id):
        raise BadRequest(
            f"Invalid '{param}': 1 to 128 letters, digits or any of . _ : @ / + = - are allowed.",
            code="invalid_value",
            param=param,
        )
    return request_id


class RequestIds:
    """ASGI middleware. The id stands in ``scope["state"]["request_id"]``; a door may replace it before it answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shared = scope.setdefault("state", {})
        given = Headers(scope=scope).get(HEADER)
        shared["request_id"] = new_request_id()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = shared["request_id"]
            await send(message)

        try:
            if given is not None:
                shared["request_id"] = checked(given, HEADER)
        except BadRequest as error:
            await refusals.response(error)(scope, receive, send_with_id)
            return
        await self._app(scope, receive, send_with_id)
