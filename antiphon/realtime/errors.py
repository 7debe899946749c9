"""Everything the realtime room raises; each is fit for a client.

RealtimeError
├── ProtocolError      a client event that is not one: told as an ``error`` event, the session goes on
├── Unauthorized       no key, a wrong one, an expired one
├── TooMany            a limit of sessions or of rate; ``retry_after_s`` is a hint
├── BadRequest         a REST body with a field that is missing, of the wrong type or out of range
│   ├── NotServed      right in itself, but the running pipeline cannot do it; the text says why
│   ├── NotFound       no such thing (404)
│   ├── TooBig         more bytes than the limit (413)
│   └── WrongMedia     a body of another content type (415)
├── Unavailable        not now: starting, draining, failed to start (503); ``retry_after_s`` is a hint
├── ClientGone         nobody is there to be answered any more
└── Stalled            a peer that does not read; the connection is cut off
"""

from __future__ import annotations


class RealtimeError(Exception):
    """Root of the room's exceptions: the OpenAI error shape, and the HTTP status it goes with."""

    type = "invalid_request_error"
    status = 400

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ProtocolError(RealtimeError):
    """A frame that is no client event, or one with a field missing or of the wrong type.

    ``event_id`` is the offending event's own, if it could be read.
    """

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None, event_id: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.event_id = event_id


class Unauthorized(RealtimeError):
    """The caller may not come in."""

    status = 401

    def __init__(self, message: str, *, code: str = "invalid_api_key") -> None:
        super().__init__(message, code=code)


class TooMany(RealtimeError):
    """Past a limit; nothing was queued."""

    type = "rate_limit_error"
    status = 429

    def __init__(self, message: str, *, code: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class BadRequest(RealtimeError):
    """A REST body that cannot be served as it stands; ``param`` is the path of the field."""


class NotServed(BadRequest):
    """The running pipeline has no such terminal or input."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, code="not_served_by_pipeline", param=param)


class NotFound(BadRequest):
    """No such thing, or not any more."""

    status = 404


class TooBig(BadRequest):
    """More bytes than the limit; the rest of the body is not read."""

    status = 413


class WrongMedia(BadRequest):
    """A body of another content type than this door reads."""

    status = 415


class Unavailable(RealtimeError):
    """The server cannot answer now."""

    type = "server_error"
    status = 503

    def __init__(self, message: str, *, code: str = "unavailable", retry_after_s: float = 1.0) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class ClientGone(RealtimeError):
    """The client has closed its connection; its request is aborted and nothing is sent."""


class Stalled(RealtimeError):
    """A peer does not read what it is sent."""

    status = 408
