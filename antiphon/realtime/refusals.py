"""Every error that a REST door can meet, in the OpenAI error shape, with its status and Retry-After."""

from __future__ import annotations

import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from antiphon.codecs.errors import CodecError, MissingExtra, TooLarge
from antiphon.pipelines.errors import Aborted, Busy, PipelineError, Refused, StageFailed
from antiphon.realtime.errors import RealtimeError

KNOWN = (RealtimeError, PipelineError, CodecError)
"""What ``describe`` explains; anything else is a fault of ours and is told as one, without its text."""

SHOWN_PATH = 200
"""Characters of a wrong address that are said back."""
SERVER_FAULT = "The server had an error while processing your request."
_STATUS = {"request_id_in_use": 409, "context_length_exceeded": 400}
_HTTP = {
    404: ("Unknown request URL: {method} {path}.", "unknown_url"),
    405: ("Not allowed: {method} {path}.", "method_not_allowed"),
}


class Described:
    """An error as HTTP tells it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str,
        code: str | None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.message, self.type, self.code, self.param = status, message, type, code, param
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """Whole seconds, at least one: 0 makes clients hammer."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(min(self.retry_after_s, 3600.0))))}


def describe(error: BaseException) -> Described:
    """Status, type, code, param and message of any exception."""
    client, server = "invalid_request_error", "server_error"
    match error:
        case RealtimeError():
            retry = getattr(error, "retry_after_s", None)
            return Described(error.status, str(error), type=error.type, code=error.code, param=error.param, retry_after_s=retry)
        case Busy():
            return Described(503, str(error), type=server, code=error.code, retry_after_s=error.retry_after_s)
        case Refused():
            return Described(_STATUS.get(error.code, 400), str(error), type=client, code=error.code, param=error.param)
        case StageFailed(retryable=True):
            return Described(503, error.message, type=server, code=error.code, retry_after_s=1.0)
        case StageFailed():
            return Described(500, error.message, type=server, code=error.code)
        case Aborted(reason="shutdown"):
            return Described(503, "The server is shutting down.", type=server, code="server_shutting_down", retry_after_s=10.0)
        case Aborted():
            return Described(500, f"The request was aborted: {error.reason}.", type=server, code=error.reason)
        case TooLarge():
            return Described(413, str(error), type=client, code="file_too_large", param="file")
        case MissingExtra():
            return Described(400, str(error), type=client, code="not_installed")
        case CodecError():
            return Described(400, str(error), type=client, code="invalid_audio")
        case _:
            return Described(500, SERVER_FAULT, type=server, code=None)


def response(error: BaseException) -> JSONResponse:
    """The error as an HTTP answer."""
    told = describe(error)
    return JSONResponse(told.body, status_code=told.status, headers=told.headers)


async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Starlette's own refusals (no such path, no such method) in the same shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    text, code = _HTTP.get(status, (str(getattr(error, "detail", SERVER_FAULT)), None))
    message = text.format(method=request.method, path=request.url.path[:SHOWN_PATH]) if status in _HTTP else text
    told = Described(status, message, type="invalid_request_error" if status < 500 else "server_error", code=code)
    headers = dict(getattr(error, "headers", None) or {})
    return JSONResponse(told.body, status_code=status, headers=headers)


async def on_exception(_: Request, __: Exception) -> JSONResponse:
    """The last resort, outside every door."""
    return response(RuntimeError())
