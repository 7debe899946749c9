"""The outgoing track: a clock of 20 ms that takes frames from ``Speech`` and tells what has been played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame

from antiphon.codecs.pcm import to_s16
from antiphon.codecs.resample import FirResampler
from antiphon.realtime.webrtc.arrivals import OPUS_RATE
from antiphon.realtime.webrtc.speech import Speech
from antiphon.session.events import OUT_RATE

FRAME_S = 0.02
SAMPLES = OPUS_RATE // 50
SILENCE = bytes(2 * SAMPLES)
LATE_S = 0.2
"""Behind by more than this, the clock starts anew instead of sending a burst."""


class Track(MediaStreamTrack):  # type: ignore[misc]
    """On the loop, for every frame: ``on_played(item_id, samples in all)``, then ``on_frame`` with its 24 kHz samples."""

    kind = "audio"

    def __init__(self, on_played: Callable[[str, int], None], on_frame: Callable[[np.ndarray], None]) -> None:
        super().__init__()
        self.speech = Speech()
        self._on_played = on_played
        self._on_frame = on_frame
        self._resample = FirResampler(OUT_RATE, OPUS_RATE)
        # What the filter holds back at first stands here as silence, so that every frame is whole.
        self._ready = np.zeros(round(self._resample.look_ahead_s * OPUS_RATE) + 2, np.float32)
        self._at = 0.0
        self._pts = 0
        self._silent = False  # the first frame goes through the filter, which holds back its edge

    async def recv(self) -> AudioFrame:
        """The next 20 ms, at its time: 48 kHz mono s16."""
        if self.readyState != "live":
            raise MediaStreamError
        await self._until_due()
        samples, played = self.speech.frame()
        for item_id, total in played:
            self._on_played(item_id, total)
        self._on_frame(samples)
        return self._frame(samples)

    async def _until_due(self) -> None:
        now = asyncio.get_running_loop().time()
        self._at += FRAME_S
        if self._at < now - LATE_S:
            self._at = now
        elif self._at > now:
            await asyncio.sleep(self._at - now)

    def _frame(self, samples: np.ndarray) -> AudioFrame:
        frame = AudioFrame(format="s16", layout="mono", samples=SAMPLES)
        frame.planes[0].update(self._at_48k(samples))
        frame.sample_rate, frame.time_base, frame.pts = OPUS_RATE, Fraction(1, OPUS_RATE), self._pts
        self._pts += SAMPLES
        return frame

    def _at_48k(self, samples: np.ndarray) -> bytes:
        """s16le. A call is silent most of its time: once the filter holds nothing but silence it has nothing to do."""
        was_silent, self._silent = self._silent, not samples.any()
        if was_silent and self._silent:
            return SILENCE
        self._ready = np.concatenate((self._ready, self._resample.feed(samples)))
        out, self._ready = self._ready[:SAMPLES], self._ready[SAMPLES:]
        return to_s16(out)
