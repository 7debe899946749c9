"""What waits for a listener's loudspeaker: pieces in, frames of 20 ms out, and an account of what has been played.

Who plays knows: the server over WebRTC, ``antiphon talk`` by its sound card. Samples are float32 mono at 24 kHz.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from antiphon.session.events import OUT_RATE, Play

Samples = NDArray[np.float32]

FRAME = OUT_RATE // 50
"""Samples in one frame."""
FADE = OUT_RATE // 200
"""5 ms: how an interrupted answer ends; a hard cut clicks."""
EDGE = OUT_RATE // 500
"""2 ms at the edges of a gap in an answer that is not made fast enough."""


class Speech:
    """One caller's queue. ``queued``: samples not yet played."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[str, Samples]] = deque()
        self._fading: Samples = np.zeros(0, np.float32)
        self._item = ""
        self._played = 0
        self._dry = False
        self.queued = 0

    @property
    def next_item(self) -> str:
        """Whose samples sound next; "" when nothing waits."""
        return self._pieces[0][0] if self._pieces else ""

    def play(self, sound: Play) -> None:
        """Put this behind everything else."""
        self._pieces.append((sound.item_id, np.asarray(sound.pcm, np.float32)))
        self.queued += sound.samples

    def clear(self) -> None:
        """Throw away what waits; what would have sounded next fades out within ``FADE`` samples."""
        ahead: list[Samples] = []
        while self._pieces and sum(map(len, ahead)) < FADE:
            ahead.append(self._pieces.popleft()[1])
        self._pieces.clear()
        self.queued = 0
        if not self._dry and ahead:
            tail = np.concatenate(ahead)[:FADE]
            self._fading = tail * _falling(len(tail))

    def frame(self) -> tuple[Samples, list[tuple[str, int]]]:
        """The next ``FRAME`` samples, and for each item in them how many of it have now been played in all."""
        out = np.zeros(FRAME, np.float32)
        at = len(self._fading)
        out[:at] = self._fading
        self._fading = self._fading[:0]
        played: dict[str, int] = {}
        begin = at
        while at < FRAME and self._pieces:
            item, samples = self._pieces.popleft()
            taken = samples[: FRAME - at]
            out[at : at + len(taken)] = taken
            at += len(taken)
            if len(taken) < len(samples):
                self._pieces.appendleft((item, samples[len(taken) :]))
            if item != self._item:
                self._item, self._played, self._dry = item, 0, False
            self._played += len(taken)
            played[item] = self._played
        self.queued -= at - begin
        self._soften(out, begin, at)
        return out, list(played.items())

    def _soften(self, out: Samples, begin: int, end: int) -> None:
        """No clicks where an answer runs dry, nor where it goes on."""
        if end == begin:
            return
        edge = min(EDGE, end - begin)
        if self._dry:
            out[begin : begin + edge] *= _falling(edge)[::-1]
        self._dry = end < FRAME
        if self._dry:
            out[end - edge : end] *= _falling(edge)


def _falling(samples: int) -> Samples:
    """A raised cosine from 1 to 0."""
    ramp = 0.5 + 0.5 * np.cos(np.pi * (np.arange(samples) + 0.5) / max(1, samples))
    return ramp.astype(np.float32)
