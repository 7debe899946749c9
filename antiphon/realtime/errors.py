"""Everything the realtime room raises; each is fit for a client.

RealtimeError
├── ProtocolError      a client event that is not one: told as an ``error`` event, the session goes on
├── Unauthorized       no key, a wrong one, an expired one
└── TooMany            a limit of sessions or of rate; ``retry_after_s`` is a hint
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

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, event_id: str | None = None
    ) -> None:
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
