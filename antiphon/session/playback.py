"""What was sent, what was heard, and which words that was.

Over WebSocket the client is taken to play at once and without gaps, on one timeline for the whole session; its own
``conversation.item.truncate`` overrules the estimate. Over WebRTC the shell plays, and tells (``Played``).
"""

from __future__ import annotations

import unicodedata
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from antiphon.session.events import OUT_RATE

RECOGNISED = OUT_RATE * 12 // 100
"""A word that ends within 120 ms has been heard: listeners recognise words before their end (Grosjean, "Spoken word
recognition processes and the gating paradigm", 1980). Of the figures tried (0-200 ms) it agreed best with a recogniser."""
CHARACTERS_PER_S = 15
"""A usual pace of spoken English, spaces counted: what bounds how much was said where no mark tells."""


@dataclass
class Ledger:
    """One item's audio, in output samples. ``until``: when the last one sent will have been played."""

    told: bool
    until: float = 0.0
    sent: int = 0
    played: int = 0
    exact: bool = True
    _at: array[int] = field(default_factory=lambda: array("I"))  # marks, as two flat columns: an hour of speech has
    _said: array[int] = field(default_factory=lambda: array("I"))  # tens of thousands of them

    @property
    def marks(self) -> list[tuple[int, int]]:
        """(sample, text offset), both rising."""
        return list(zip(self._at, self._said, strict=True))

    def send(self, samples: int, marks: tuple[tuple[int, int], ...], exact: bool, now: float) -> None:
        """``marks``: (sample, text offset), counted in this item; those that do not rise say nothing new."""
        self.until = max(self.until, now) + samples / OUT_RATE
        self.sent += samples
        self.exact = self.exact and exact
        for sample, offset in marks:
            last = (self._at[-1], self._said[-1]) if self._at else (0, 0)
            if sample > last[0] and offset >= last[1]:
                self._at.append(sample)
                self._said.append(offset)
            elif self._at and sample == last[0] and offset > last[1]:
                self._said[-1] = offset

    def heard(self, now: float) -> int:
        if self.told:
            return min(self.played, self.sent)
        return max(0, min(self.sent, self.sent - round((self.until - now) * OUT_RATE)))

    def lead(self, now: float) -> float:
        """Seconds of audio sent and not yet heard."""
        return (self.sent - self.heard(now)) / OUT_RATE if self.told else max(0.0, self.until - now)

    def text_at(self, sample: int, text: str) -> int:
        """How much of ``text`` was said by ``sample``.

        On an exact mark it is the mark's offset; between two it is taken in proportion and rounded down to the end of a word,
        so that what is kept was really said. Without any mark the whole text is taken to lie evenly over what was sent, but
        never to be said faster than speech: the text of an answer is there long before its sound, and its first mark only at
        the end of its first word.
        """
        if sample <= 0:
            return 0
        if not self._at:
            said = min(sample, self.sent)
            return word_end(text, min(len(text) * said // self.sent, CHARACTERS_PER_S * said // OUT_RATE)) if said else 0
        k = bisect_right(self._at, sample)
        nearly = bisect_right(self._at, sample + RECOGNISED) if self.exact else k
        if nearly > k:
            return min(self._said[nearly - 1], len(text))
        before = (self._at[k - 1], self._said[k - 1]) if k else (0, 0)
        if k == len(self._at) or before[0] == sample:
            offset = min(before[1], len(text))
            return offset if self.exact else word_end(text, offset)
        after = (self._at[k], self._said[k])
        offset = before[1] + (after[1] - before[1]) * (sample - before[0]) // (after[0] - before[0])
        least = min(before[1], len(text)) if self.exact else 0
        return max(least, word_end(text, min(offset, len(text))))


def word_end(text: str, offset: int) -> int:
    """The last place at or before ``offset`` where no word is cut. Scripts without spaces are cut where they are."""
    if offset >= len(text) or offset <= 0 or not (_in_word(text[offset]) and _in_word(text[offset - 1])):
        return max(0, offset)
    start = offset
    while start > 0 and _in_word(text[start - 1]):
        start -= 1
    return len(text[:start].rstrip())


def _in_word(character: str) -> bool:
    """Letters, digits, and what joins them. CJK, kana, Hangul and Thai write no spaces that could be relied on."""
    if not (character.isalnum() or character in "'’-_" or unicodedata.category(character).startswith("M")):
        return False
    code = ord(character)
    return not (0x0E00 <= code <= 0x0E7F or 0x2E80 <= code <= 0xA4CF or 0xAC00 <= code <= 0xD7A3 or code >= 0xF900)
