"""The input path: bytes in the session's input format to 16 kHz float32 mono, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs import g711, pcm
from antiphon.codecs.resample import FirResampler
from antiphon.session.events import IN_RATE

Samples = NDArray[np.float32]
PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
WIRE_RATE = 24_000
"""Samples per second of ``audio/pcm`` unless a session asks for another."""


def rate_of(audio_format: Mapping[str, Any]) -> int:
    """Samples per second of a GA format object."""
    return g711.RATE if audio_format["type"] in (PCMU, PCMA) else int(audio_format.get("rate") or WIRE_RATE)


class Hearing:
    """A stream of one format; odd bytes are carried to the next piece, and so are the resampler's neighbours."""

    def __init__(self, audio_format: Mapping[str, Any]) -> None:
        self.format = dict(audio_format)
        kind = audio_format["type"]
        self._decode: Callable[[bytes], Samples]
        if kind == PCMU:
            self._decode = g711.ulaw_decode
        elif kind == PCMA:
            self._decode = g711.alaw_decode
        else:
            self._decode = pcm.PcmDecoder().feed
        self._resample = FirResampler(rate_of(audio_format), IN_RATE)

    def feed(self, data: bytes) -> Samples:
        """The 16 kHz samples that ``data`` completes, float32 [n], perhaps none."""
        return self._resample.feed(self._decode(data))

    def finish(self) -> Samples:
        """What the resampler held back; the stream is over."""
        return self._resample.flush()

    @property
    def slice_bytes(self) -> int:
        """Bytes of about one second: what may be decoded without holding up the event loop."""
        return rate_of(self.format) * (2 if self.format["type"] == PCM else 1)


def whole(data: bytes, audio_format: Mapping[str, Any]) -> Samples:
    """A whole recording in a wire format as 16 kHz float32 [n]; half a sample at its end is left out."""
    stream = Hearing(audio_format)
    return np.concatenate((stream.feed(data), stream.finish()))
