"""When each word was said, from where the decoder looked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.pipelines.outputs import Word

LONGEST_S: Final = 1.2
"""A word that seems longer began later: cross attention gives a pause to the word behind it (openai/whisper, timing.py)."""
_EDGE_S: Final = 0.06
"""A consonant may lie so far outside of what scores as voice."""


def word_times(
    words: Sequence[tuple[str, int]], times: Sequence[tuple[int, float]], offset: float, seconds: float
) -> list[Word]:
    """``words`` with their token counts, the second at which each token begins -> words of the whole recording.

    A word ends where the next begins, the last where the sound does.
    """
    begins = dict(times)
    starts: list[float] = []
    at, last = 0, 0.0
    for _, count in words:
        last = max(last, begins.get(at, last))
        starts.append(min(last, seconds))
        at += count
    found: list[Word] = []
    for i, (text, _) in enumerate(words):
        end = starts[i + 1] if i + 1 < len(starts) else seconds
        if not text.strip():
            continue
        start, end = _plausible(starts[i], end, last=i + 1 == len(starts))
        found.append(Word(text.strip(), round(offset + start, 2), round(offset + end, 2)))
    return found


def snapped(words: Sequence[Word], voiced: Sequence[tuple[float, float]]) -> list[Word]:
    """Each word kept to the stretch of voice that it shares most with; one that touches none stays as it is.

    Cross attention gives a pause to the word before or behind it; the voice detector knows better.
    """
    found: list[Word] = []
    for word in words:
        shared = [(min(word.end, b) - max(word.start, a), a, b) for a, b in voiced if a < word.end and b > word.start]
        if shared:
            _, a, b = max(shared)
            word = Word(word.word, round(max(word.start, a - _EDGE_S), 2), round(min(word.end, b + _EDGE_S), 2))
        found.append(word)
    return found


def _plausible(start: float, end: float, *, last: bool) -> tuple[float, float]:
    if end - start <= LONGEST_S:
        return start, end
    return (start, start + LONGEST_S) if last else (end - LONGEST_S, end)
