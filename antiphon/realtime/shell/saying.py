"""The output path: 24 kHz float32 to base64 in the format that a response was promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs import base64, g711, pcm
from antiphon.codecs.resample import FirResampler
from antiphon.realtime.shell.hearing import PCMA, PCMU, rate_of
from antiphon.session.events import OUT_RATE

Samples = NDArray[np.float32]


class Saying:
    """One item's audio stream. PCM at 24 kHz is sent as it is; other formats go through a short FIR with a memory."""

    def __init__(self, audio_format: Mapping[str, Any], rate: int = OUT_RATE) -> None:
        self._kind = audio_format["type"]
        self.resample = FirResampler(rate, rate_of(audio_format))

    def feed(self, samples: Samples) -> str:
        """Base64 of what these samples complete; "" when the filter holds all of them back. Whole samples only."""
        return self.text(self.resample.feed(samples))

    def finish(self) -> str:
        """Base64 of what the filter held back."""
        return self.text(self.resample.flush())

    def text(self, samples: Samples) -> str:
        """Samples at the format's own rate as base64."""
        if self._kind == PCMU:
            return base64.encode(g711.ulaw_encode(samples))
        if self._kind == PCMA:
            return base64.encode(g711.alaw_encode(samples))
        return base64.encode(pcm.to_s16(samples))


def whole(samples: Samples, audio_format: Mapping[str, Any], rate: int) -> str:
    """A whole recording, float32 [n] at ``rate``, as base64 in a wire format."""
    stream = Saying(audio_format, rate)
    return stream.text(np.concatenate((stream.resample.feed(samples), stream.resample.flush())))
