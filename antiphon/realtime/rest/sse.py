"""Server-sent events, as OpenAI's streams are written: one ``data:`` line and a blank line an event."""

from __future__ import annotations

from typing import Any, Final

import msgspec

HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
MEDIA_TYPE: Final = "text/event-stream"
DONE: Final = b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def comment(text: str) -> bytes:
    """A line that every client skips."""
    return b": " + text.replace("\n", " ").encode() + b"\n\n"
