"""Everything the session room raises.

SessionError
└── Refused              a client's fault: answered with an ``error`` event, the state is as it was before
    └── ContextOverflow  the conversation no longer fits the model and may not be trimmed: fails the response
"""

from __future__ import annotations

from typing import Any


class SessionError(Exception):
    """Root of the room's exceptions."""


class Refused(SessionError):
    """A client event that cannot be obeyed. ``code`` and ``param`` as in the protocol's error table."""

    def __init__(self, message: str, code: str | None = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ContextOverflow(Refused):
    """``truncation`` is "disabled" and the context is full."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"This model's maximum context length is exceeded: the conversation takes about {tokens} tokens, there is room for "
            f"{limit}, and truncation is disabled.",
            "context_length_exceeded",
        )


def missing(param: str) -> Refused:
    return Refused(f"Missing required parameter: '{param}'.", "missing_required_parameter", param)


def wrong_type(param: str, wanted: str, got: Any) -> Refused:
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    name = "null" if got is None else names.get(type(got), "something else")
    return Refused(f"Invalid type for '{param}': expected {wanted}, but got {name} instead.", "invalid_type", param)


def wrong_value(param: str, got: Any, wanted: str) -> Refused:
    return Refused(f"Invalid value: {_shown(got)}. Supported values are: {wanted}.", "invalid_value", param)


def _shown(value: Any) -> str:
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def error_event(
    message: str,
    code: str | None,
    *,
    param: str | None = None,
    event_id: str | None = None,
    kind: str = "invalid_request_error",
) -> dict[str, Any]:
    """An ``error`` event. ``event_id`` is the offending client event's own, which clients match on."""
    return {
        "type": "error",
        "error": {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id},
    }


def refusal(refused: Refused, event_id: str | None = None) -> dict[str, Any]:
    """The ``error`` event that answers a refused client event."""
    return error_event(str(refused), refused.code, param=refused.param, event_id=event_id)
