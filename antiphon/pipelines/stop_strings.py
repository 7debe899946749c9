"""Stop strings in text that comes in pieces: where the answer ends, and what may still become an end."""

from __future__ import annotations

from collections.abc import Sequence


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first; of two that end together the longer. None without any.

    Whoever comes first in the text but is complete later is not waited for: the answer ends where it would have ended had the
    text come letter by letter, wherever it was cut.
    """
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def unfinished(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a stop string."""
    return max((_overlap(text, stop) for stop in stops), default=0)


def _overlap(text: str, stop: str) -> int:
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
