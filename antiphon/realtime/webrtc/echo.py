"""An echo canceller for callers that have none: the agent's own voice is taken out of what their microphone brings.

The work is WebRTC's AEC3, by LiveKit's ``AudioProcessingModule`` (extra ``echo``). It needs to know what was played, in step
with what was heard; only a call has both, because there the server plays. It finds the delay between the two itself (up to
about 500 ms) as long as that stays the same. So the two are paired by counting samples, never by when they come: the
network's jitter moves a packet, not its place in the caller's microphone.

Browsers cancel their echo better, next to the loudspeaker: this is for telephones, boards and bare peer connections.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.pcm import from_s16, to_s16
from antiphon.codecs.resample import FirResampler
from antiphon.session.events import IN_RATE, OUT_RATE

BLOCK = IN_RATE // 100
"""Samples in the 10 ms that the canceller takes at a time."""
LEAD = 50
"""Blocks of playback kept for a microphone that is late, at most; the oldest go, and the delay is found anew."""


def installed() -> bool:
    """Whether the extra is here."""
    return importlib.util.find_spec("livekit") is not None


class EchoCanceller:
    """One call's. Samples are float32 mono, played at 24 kHz, heard at 16 kHz; not for several threads."""

    def __init__(self) -> None:
        from livekit import rtc

        self._frame = rtc.AudioFrame
        self._module: Any = rtc.AudioProcessingModule(echo_cancellation=True, high_pass_filter=True)
        self._resample = FirResampler(OUT_RATE, IN_RATE)
        self._playing = np.zeros(0, np.float32)
        self._played: deque[bytes] = deque(maxlen=LEAD)
        self._hearing = np.zeros(0, np.float32)
        self._begun = False

    def played(self, samples: NDArray[np.float32]) -> None:
        """The next samples of the loudspeaker, silence as well."""
        blocks, self._playing = _blocks(np.concatenate((self._playing, self._resample.feed(samples))))
        self._played.extend(blocks)

    def heard(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The next samples of the microphone, less the echo; fewer than 10 ms of them are held back."""
        if not self._begun:
            self._begun = True
            self._played.clear()
            # What does not fill a block stands first, as silence: later pieces of 20 ms then go through whole.
            self._hearing = np.zeros(-len(samples) % BLOCK, np.float32)
        blocks, self._hearing = _blocks(np.concatenate((self._hearing, samples)))
        clean = [self._cancelled(block) for block in blocks]
        return np.concatenate(clean) if clean else np.zeros(0, np.float32)

    def _cancelled(self, heard: bytes) -> NDArray[np.float32]:
        played = self._played.popleft() if self._played else bytes(len(heard))
        self._module.process_reverse_stream(self._frame(bytearray(played), IN_RATE, 1, BLOCK))
        self._module.set_stream_delay_ms(0)
        frame = self._frame(bytearray(heard), IN_RATE, 1, BLOCK)
        self._module.process_stream(frame)
        return from_s16(bytes(frame.data))


def _blocks(samples: NDArray[np.float32]) -> tuple[list[bytes], NDArray[np.float32]]:
    """Whole blocks as s16le, and the rest."""
    whole = len(samples) // BLOCK * BLOCK
    data = to_s16(samples[:whole])
    return [data[at : at + 2 * BLOCK] for at in range(0, len(data), 2 * BLOCK)], samples[whole:]
