"""Everything the pipelines room raises.

PipelineError
├── ConfigError        a declaration that cannot run; spoken at start-up, by name
├── Refused            a request that this pipeline cannot serve; the text says why, by name
│   └── Busy           past the admission bound; try again later
├── StageFailed        a stage failed the request (``retryable`` tells whether the same request may succeed)
├── Aborted            the request was aborted by its client or by the runtime (``reason``)
├── WeightError        a named weight that is missing, broken or cannot be fetched
└── WireError          a payload or a message that cannot travel between processes
"""

from __future__ import annotations

LONGEST = 1000
"""Characters of a client's own words that an error says back to it, with all that is said around them."""


class PipelineError(Exception):
    """Root of the room's exceptions."""


class ConfigError(PipelineError, ValueError):
    """A declaration that the runtime cannot execute."""


class Refused(PipelineError):
    """A client's request that cannot be served.

    ``code`` and ``param`` are the ones of the OpenAI error shape; the message may be shown to the client.
    """

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message if len(message) <= LONGEST else f"{message[:LONGEST]}...")
        self.code = code
        self.param = None if param is None else param[:LONGEST]


class Busy(Refused):
    """The admission bound is reached; ``retry_after_s`` is a hint."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message, code="server_busy")
        self.retry_after_s = retry_after_s


class StageFailed(PipelineError):
    """A stage ended the request. ``message`` is fit for a client: no path, no traceback."""

    def __init__(self, stage: str, message: str, *, code: str = "model_error", retryable: bool = False) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage
        self.message = message
        self.code = code
        self.retryable = retryable


class Aborted(PipelineError):
    """The request ended before its terminals did: ``client``, ``reader_stalled``, ``shutdown``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"aborted: {reason}")
        self.reason = reason


class WeightError(PipelineError):
    """A weight file that is missing, has the wrong hash or could not be fetched; the message carries the remedy."""


class WireError(PipelineError):
    """A payload or a message that cannot travel between processes; the text names its type, never its content."""
