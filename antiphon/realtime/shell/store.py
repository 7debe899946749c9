"""The bytes behind the machine's spans: input samples at 16 kHz, counted from the first one of the session."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.requests import PCM_F32_16K, AudioPart
from antiphon.session.events import IN_RATE
from antiphon.session.request import Span

MAX_UNOWNED_S = 1_000.0
"""Uncommitted audio that a store can hold: 64 MB. The session bounds its buffer below that, and says so."""


class AudioStore:
    """Samples that no item owns yet stand in one growing buffer; what an item owns is kept apart until it is dropped.

    ``conversation`` makes the content keys of its spans unique among sessions.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._buffer = np.zeros(IN_RATE, np.float32)
        self._from = 0  # where sample `first` stands in the buffer
        self._kept: dict[Span, AudioPart] = {}
        self.first = 0
        self.total = 0

    @property
    def seconds(self) -> float:
        """Unowned audio held."""
        return (self.total - self.first) / IN_RATE

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self._buffer.nbytes + sum(len(part.data) for part in self._kept.values())

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples of the session, float32 [n]."""
        held = self.total - self.first
        end = self._from + held
        if end + len(samples) > len(self._buffer):
            grown = np.zeros(max(IN_RATE, 2 * (held + len(samples))), np.float32)
            grown[:held] = self._buffer[self._from : end]
            self._buffer, self._from, end = grown, 0, held
        self._buffer[end : end + len(samples)] = samples
        self.total += len(samples)

    def part(self, span: Span) -> AudioPart:
        """These samples for a request. What was forgotten is left out: spans that an item owns are whole."""
        if span in self._kept:
            return self._kept[span]
        data = self.samples(span).astype("<f4", copy=False).tobytes()
        return AudioPart(data=data, format=PCM_F32_16K, key=f"{self._conversation}:{span[0]}-{span[1]}")

    def samples(self, span: Span) -> NDArray[np.float32]:
        """float32 [n] of a span, owned or not."""
        if span in self._kept:
            return np.frombuffer(self._kept[span].data, dtype="<f4")
        start = min(max(span[0], self.first), self.total)
        end = min(max(span[1], start), self.total)
        base = self._from - self.first
        return self._buffer[base + start : base + end]

    def keep(self, span: Span) -> None:
        """An item owns these samples now."""
        self._kept[span] = self.part(span)

    def drop(self, span: Span) -> None:
        self._kept.pop(span, None)

    def forget(self, before: int) -> None:
        """Unowned samples before this one are not needed any more."""
        ahead = min(before, self.total) - self.first
        if ahead <= 0:
            return
        self.first += ahead
        self._from += ahead
        held = self.total - self.first
        if len(self._buffer) > 2 * IN_RATE + 4 * held:  # give a long turn's memory back
            small = np.zeros(max(IN_RATE, 2 * held), np.float32)
            small[:held] = self._buffer[self._from : self._from + held]
            self._buffer, self._from = small, 0

    def clear(self) -> None:
        """Everything; the session has ended."""
        self._kept.clear()
        self._buffer, self._from, self.first = np.zeros(0, np.float32), 0, self.total


def content_key(data: bytes) -> str:
    """A key by content, for audio and images that a client sent whole."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
