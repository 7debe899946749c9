"""Server events as messages that their reader can take: a longer one would close its connection."""

from __future__ import annotations

from typing import Any

from antiphon.realtime.protocol import wire
from antiphon.realtime.protocol.schema import Json

CUTS = (2_000, 64)
"""Characters that strings keep in an event that would not fit; the second where the first is not enough."""


def fitting(event: Json, limit: int) -> str:
    """The event as text of at most ``limit`` bytes. Long strings are cut, and end in "…", where it must be;
    ids never are.

    What cannot be made to fit becomes an ``error`` event that says so.
    """
    text = wire.encode(event)
    for cut in CUTS:
        if _fits(text, limit):
            return text
        text = wire.encode(_cut(event, cut))
    if _fits(text, limit):
        return text
    message = f"An event '{event['type']}' is larger than the {limit >> 10} KiB that one message may have."
    error = {"type": "server_error", "code": "event_too_large", "message": message, "param": None, "event_id": None}
    return wire.encode({"type": "error", "event_id": event["event_id"], "error": error})


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit and (text.isascii() or len(text.encode()) <= limit)


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else value[:length] + "…"
    if isinstance(value, dict):
        return {key: inner if key.endswith("id") else _cut(inner, length) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner, length) for inner in value]
    return value
