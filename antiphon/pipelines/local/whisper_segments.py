"""What a decoded window says, when, and whether to believe it. Pure.

The rule for short windows was found by measuring (``benchmarks/word_error``): read **with** timestamps. A window shorter
than the thirty seconds of training tempts the decoder to say everything twice; asked for times, it closes its sentence
at the end of the sound instead, and what it still adds is dated behind that end and can be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

STEP_S: Final = 0.02
LATE_S: Final = 0.15
"""A later segment that begins so close to the end of the sound, or behind it, was never said."""
LOOPS: Final = 2.4
"""Compression ratio above which a text repeats itself (openai/whisper, transcribe.py)."""
UNSURE: Final = -1.3
"""Average log probability below which a reading is tried again. Whisper's -1.0 is meant for whole windows: in a text of
one or two words the two timestamps weigh more than the words."""
NOTHING, NOTHING_UNSURE = 0.6, -1.0
"""No-speech probability above which, and log probability below which, nothing was said (transcribe.py)."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A piece of a window: seconds from its start, and its tokens, times included."""

    start: float
    end: float
    tokens: tuple[int, ...]


class Verdict(Enum):
    GOOD = auto()
    NOTHING = auto()
    AGAIN = auto()


def timed(tokens: Sequence[int], first_time: int, seconds: float) -> list[Timed]:
    """Tokens with times among them -> segments inside [0, seconds]; what lies behind the sound is left out."""
    segments: list[Timed] = []
    start: float | None = None
    held: list[int] = []

    def close(end: float) -> None:
        nonlocal start, held
        begin = start if start is not None else (segments[-1].end if segments else 0.0)
        if any(t < first_time for t in held):
            segments.append(Timed(min(begin, seconds), min(max(begin, end), seconds), tuple(held)))
        start, held = None, []

    for token in tokens:
        if token < first_time:
            held.append(token)
            continue
        at = (token - first_time) * STEP_S
        if any(t < first_time for t in held):
            held.append(token)
            close(at)
        else:
            start, held = at, [token]
    close(seconds)
    return _believable(segments, first_time, seconds)


def _believable(segments: list[Timed], first_time: int, seconds: float) -> list[Timed]:
    """Up to the first segment that begins at the end of the sound or says again what was said up to there."""
    kept: list[Timed] = []
    for segment in segments:
        if kept:
            late = segment.start >= seconds - LATE_S
            words = [t for t in segment.tokens if t < first_time]
            before = [t for t in kept[-1].tokens if t < first_time]
            no_room = words == before and seconds - segment.start < 0.5 * (kept[-1].end - kept[-1].start)
            if late or no_room:
                break
        kept.append(segment)
    return kept


def loops(compression_ratio: float) -> bool:
    return compression_ratio > LOOPS


def doubled(text: str) -> bool:
    """Whether it is one sentence of at least three words said twice: the commonest fault of a short window."""
    words = text.lower().split()
    half = len(words) // 2
    return half >= 3 and len(words) == 2 * half and _bare(words[:half]) == _bare(words[half:])


def crammed(parts: Sequence[Timed], first_time: int, per_s: float) -> bool:
    """Whether a later segment has more tokens than its time can hold at ``per_s``, and two more: a sentence that is said
    again, a little otherwise, in what sound is left."""
    return any(sum(t < first_time for t in part.tokens) > 2 + per_s * (part.end - part.start) for part in parts[1:])


def _bare(words: Sequence[str]) -> list[str]:
    return [word.strip(".,;:!?") for word in words]


def judge(*, avg_logprob: float, no_speech_prob: float, compression_ratio: float, whole: bool) -> Verdict:
    """Whether a decoded window can stand."""
    if no_speech_prob > NOTHING and avg_logprob < NOTHING_UNSURE:
        return Verdict.NOTHING
    if not whole or loops(compression_ratio) or avg_logprob < UNSURE:
        return Verdict.AGAIN
    return Verdict.GOOD
