"""Frames to client events, server events to frames: JSON, base64, sizes. No state."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from antiphon.codecs import base64
from antiphon.codecs.errors import BadBase64
from antiphon.realtime.errors import ProtocolError, RealtimeError
from antiphon.realtime.protocol import schema
from antiphon.realtime.protocol.schema import Dialect, Json

MAX_FRAME = 24 << 20
"""Bytes of an incoming frame: 15 MiB of audio in base64, and room."""
MAX_APPEND = 15 << 20
"""Bytes of audio in one ``input_audio_buffer.append``."""
MAX_OUT = 1 << 20
"""Bytes that one outgoing frame stays under: the smallest limit among the known clients."""


def parse(frame: str | bytes, dialect: Dialect = "ga") -> Json:
    """One frame (text, or binary that holds the same text) as a checked client event in its own dialect.

    Raises ``ProtocolError`` and nothing else.
    """
    if len(frame) > MAX_FRAME:
        raise ProtocolError(f"The message is larger than {MAX_FRAME >> 20} MiB.", code="invalid_value")
    try:
        event = msgspec.json.decode(frame)
    except RecursionError:
        raise ProtocolError("The message is nested too deeply.", code="invalid_json") from None
    except (msgspec.MsgspecError, UnicodeError):
        # Lone surrogates end here too: no frame could carry them back.
        raise ProtocolError("Could not parse your message as JSON.", code="invalid_json") from None
    return schema.check(event, dialect)


def audio_bytes(text: str, *, param: str = "audio", event_id: str | None = None) -> bytes:
    """The audio of an event; raises ``ProtocolError`` for what is not base64 and for more than ``MAX_APPEND``."""
    try:
        data = base64.decode(text)
    except BadBase64:
        message = f"Invalid '{param}'. Expected base64-encoded audio bytes."
        raise ProtocolError(message, code="invalid_value", param=param, event_id=event_id) from None
    if len(data) > MAX_APPEND:
        message = f"Invalid '{param}'. At most {MAX_APPEND >> 20} MiB of audio are allowed in one message."
        raise ProtocolError(message, code="invalid_value", param=param, event_id=event_id)
    return data


def encode(event: Json) -> str:
    """One server event as the text of one frame."""
    try:
        return msgspec.json.encode(event).decode()
    except OverflowError:  # an integer beyond 64 bits that a client wrote, in a tool's schema say
        return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def error_event(error: RealtimeError, event_id: str | None = None) -> Json:
    """The ``error`` event for a refusal; ``event_id`` is the client event's, if the error does not know it."""
    body: dict[str, Any] = {
        "type": error.type,
        "code": error.code,
        "message": str(error),
        "param": error.param,
        "event_id": getattr(error, "event_id", None) or event_id,
    }
    return {"type": "error", "error": body}
