"""What of a growing utterance is sure enough to be shown: text that will not be taken back. Pure.

The utterance is read again and again as it grows; of two readings that follow each other their common beginning is kept
(local agreement: Liu et al., "Low-Latency Sequence-to-Sequence Speech Recognition", 2020; Macháček et al., "Turning
Whisper into Real-Time Transcription System", 2023). Words agree regardless of case and punctuation, which Whisper
settles late. What was shown stays as it was shown: where later readings hear one of its words differently, the rest goes
on behind it; where they hear something else altogether, nothing more is shown.
"""

from __future__ import annotations

from typing import Final

ALIKE: Final = 0.7
"""How many of the shown words a reading must still have in their places to be gone on with."""
_MARKS: Final = ".,;:!?…\"'()[]-"


class Partials:
    """Feed it each reading of the whole utterance so far; it returns what is new and sure."""

    def __init__(self) -> None:
        self._last: list[str] = []
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return " ".join(self._shown)

    def read(self, text: str) -> str:
        """The next piece to show, with its leading space, or "". The last word of a reading is never sure: it may be cut."""
        words = text.split()
        agreed = min(_agreed(self._last, words), max(0, len(words) - 1))
        self._last = words
        return self._show(words, agreed)

    def end(self, text: str) -> str:
        """The final reading has come: the rest of it, as far as it goes on from what was shown."""
        words = text.split()
        return self._show(words, len(words))

    def _show(self, words: list[str], upto: int) -> str:
        done = len(self._shown)
        if upto <= done or _alike(self._shown, words) < ALIKE * done:
            return ""
        new = words[done:upto]
        self._shown += new
        return (" " if done else "") + " ".join(new)


def _agreed(a: list[str], b: list[str]) -> int:
    """How many words from the start are the same."""
    count = 0
    for one, other in zip(a, b, strict=False):
        if _bare(one) != _bare(other):
            break
        count += 1
    return count


def _alike(a: list[str], b: list[str]) -> int:
    """How many words are the same in the same places."""
    return sum(_bare(one) == _bare(other) for one, other in zip(a, b, strict=False))


def _bare(word: str) -> str:
    return word.lower().strip(_MARKS)
