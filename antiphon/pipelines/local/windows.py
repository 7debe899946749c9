"""Which parts of a recording are read, and where a long one is cut. Pure.

Reading only where somebody speaks saves time, and it is the best remedy against words that nobody said: Whisper turns
silence into "Thank you." and noise into sentences (field knowledge; its own no-speech probability is no help in a
short window).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
SCORED: Final = 512
"""Samples that one speech score stands for."""
LONGEST_S: Final = 12.0
"""Speech in one window, so that a step stays short; longer speech is cut at a quiet place."""
SHORTEST_S: Final = 3.0
"""What a cut leaves at least on both sides."""
VOICED, SURE = 0.35, 0.5
"""A score from which a window counts as voiced; a recording with one sure or two voiced ones holds speech."""
BEFORE_S, AFTER_S = 0.3, 0.3
"""Kept around speech: the first consonant is often scored low."""
LONGEST_PAUSE_S: Final = 3.0
"""A longer pause is not read; a shorter one stays inside a window, where sentences belong together."""
_QUIET_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Span:
    """Samples [start, end) of the recording."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / RATE


def speech(scores: Sequence[float] | NDArray[np.float32], total: int) -> list[Span]:
    """Where somebody speaks in a recording of ``total`` samples, by one score for every 512; room around it."""
    p = np.asarray(scores, np.float32)
    voiced = np.flatnonzero(p >= VOICED)
    if len(voiced) == 0 or (len(voiced) < 2 and p.max() < SURE):
        return []
    spans: list[Span] = []
    for i in voiced:
        start = max(0, int(i) * SCORED - int(BEFORE_S * RATE))
        end = min(total, (int(i) + 1) * SCORED + int(AFTER_S * RATE))
        if spans and start - spans[-1].end <= LONGEST_PAUSE_S * RATE:
            spans[-1] = Span(spans[-1].start, end)
        else:
            spans.append(Span(start, end))
    return spans


def voiced(scores: Sequence[float] | NDArray[np.float32]) -> list[tuple[float, float]]:
    """Stretches of voice in seconds; breaks shorter than a fifth of a second do not part them."""
    stretches: list[tuple[float, float]] = []
    for i in np.flatnonzero(np.asarray(scores, np.float32) >= VOICED):
        start, end = int(i) * SCORED / RATE, (int(i) + 1) * SCORED / RATE
        if stretches and start - stretches[-1][1] < _QUIET_S:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return stretches


def cut(samples: NDArray[np.float32], span: Span, longest_s: float = LONGEST_S) -> Iterator[Span]:
    """The span in pieces of at most ``longest_s``, cut where it is quietest; together they are the span."""
    start = span.start
    most = int(longest_s * RATE)
    while span.end - start > most:
        rest = span.end - start
        low = start + min(most // 2, rest // 2)
        high = start + min(most, rest - int(SHORTEST_S * RATE))
        at = _quietest(samples, low, max(high, low + 1))
        yield Span(start, at)
        start = at
    if span.end > start:
        yield Span(start, span.end)


def _quietest(samples: NDArray[np.float32], low: int, high: int) -> int:
    """The middle of the quietest fifth of a second in [low, high)."""
    width = int(_QUIET_S * RATE)
    power = np.square(samples[low : high + width], dtype=np.float64)
    if len(power) <= width:
        return low
    running = np.cumsum(np.concatenate([[0.0], power]))
    energy = running[width:] - running[:-width]
    return low + min(int(energy.argmin()) + width // 2, high - low)


def plan(samples: NDArray[np.float32], spans: Sequence[Span]) -> list[Span]:
    """Every window that has to be read, in order."""
    return [piece for span in spans for piece in cut(samples, span)]
