"""Which text the voice has said by which sample. Estimated: the model tells no durations.

The Talker takes one token a frame, far faster than it speaks them, so that count is only an upper bound. Between it and the
end of the speech, text is laid out at an assumed pace and rounded down to words; the end of the speech is the end of the
text. ``AudioDelta.exact`` is therefore False.
"""

from __future__ import annotations

from antiphon.pipelines.outputs import AUDIO_RATE, Mark

CHARACTERS_PER_SECOND = 15.0
"""A usual pace of spoken English with its spaces; an ideograph counts as WIDE characters."""
WIDE = 3.5
_IDEOGRAPHS = 0x2E80


def weight(char: str) -> float:
    """How long it takes to say it, in characters of English."""
    return WIDE if ord(char) >= _IDEOGRAPHS else 1.0


class SpeechMarks:
    """One answer's marks: text goes in as it is handed to the voice, marks come out as audio does."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._length = 0
        self._pending: list[Mark] = []
        self._at_boundary = True

    def hand_over(self, text: str, sample: int) -> None:
        """This text, next in the answer, went to the voice no earlier than at ``sample``."""
        for char in text:
            wide = ord(char) >= _IDEOGRAPHS
            boundary = char.isspace() or wide
            if boundary and not self._at_boundary:
                self._mark(sample)
            self._weight += weight(char)
            self._length += 1
            self._at_boundary = boundary
            if wide:
                self._mark(sample)

    def until(self, sample: int) -> tuple[Mark, ...]:
        """The marks at or before ``sample``, each told once."""
        told = tuple(m for m in self._pending if m.sample <= sample)
        self._pending = self._pending[len(told) :]
        return told

    def end(self, sample: int) -> tuple[Mark, ...]:
        """The speech ends here: so does its text."""
        self._pending = []
        return (Mark(sample, self._length),) if self._length else ()

    def _mark(self, earliest: int) -> None:
        paced = int(self._weight / CHARACTERS_PER_SECOND * AUDIO_RATE)
        last = self._pending[-1].sample if self._pending else 0
        self._pending.append(Mark(max(paced, earliest, last), self._length))
