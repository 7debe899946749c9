"""A player that is only simulated: what a listener would have heard of an answer, from when its pieces came."""

from __future__ import annotations

import base64
from typing import Any

BYTES_A_SECOND = 48_000
AUDIO = "response.output_audio.delta"
LATE_S = 2.0
"""A busy machine is late by itself now and then; who had lost his answer would wait for ever."""


def late_by(events: list[dict[str, Any]], response_id: str, buffer_s: float) -> float:
    """The longest silence in mid-answer, in seconds, to a player that starts ``buffer_s`` after the first piece came: how
    late a piece was when all before it had been played. 0 when none was late."""
    pieces = [e for e in events if e["type"] == AUDIO and e["response_id"] == response_id]
    ends = pieces[0]["_at"] + buffer_s
    worst = 0.0
    for piece in pieces:
        worst = max(worst, piece["_at"] - ends)
        ends = max(ends, piece["_at"]) + len(base64.b64decode(piece["delta"])) / BYTES_A_SECOND
    return worst
