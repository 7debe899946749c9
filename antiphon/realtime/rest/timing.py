"""How long the parts of a request took, from the graph's own timeline: for the log, for metrics, and, asked for by the
header ``X-Antiphon-Timing: 1``, for the client."""

from __future__ import annotations

from collections.abc import Mapping

ASKED_BY = "x-antiphon-timing"
_MOMENTS = {
    "first_token": "first:text",
    "first_audio": "first:audio",
    "first_transcript": "first:transcript",
    "text": "done:text",
    "audio": "done:audio",
    "transcript": "done:transcript",
    "total": "ended",
    "released": "released",
}
_ENTRY = "preprocessing"


def milliseconds(timeline: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds after the request was submitted: ``media`` (its audio and images were prepared), first_token,
    first_audio, text (done), audio (done), transcript, total, released; and ``queue-STAGE``, waited in front of it."""
    begun = timeline.get("submitted", 0.0)
    told: dict[str, float] = {}
    if f"step:{_ENTRY}" in timeline:
        told["media"] = timeline[f"step:{_ENTRY}"] + timeline.get(f"queue:{_ENTRY}", 0.0)
    told |= {name: timeline[moment] - begun for name, moment in _MOMENTS.items() if moment in timeline}
    told |= {key.replace(":", "-"): spent for key, spent in timeline.items() if key.startswith("queue:")}
    return {name: round(seconds * 1000, 2) for name, seconds in told.items()}


def server_timing(timeline: Mapping[str, float]) -> str:
    """As the value of a Server-Timing header (W3C Server Timing): ``first_token;dur=61.2, total;dur=803.4``."""
    return ", ".join(f"{name};dur={ms:g}" for name, ms in milliseconds(timeline).items())
