"""mp3, opus, aac and flac by FFmpeg's encoders and muxers, through PyAV.

The sink cannot seek, so no muxer goes back to fix a header, and every packet is flushed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.encode import CONTENT_TYPES
from antiphon.codecs.errors import MissingExtra, UnsupportedFormat


@dataclass(frozen=True)
class _Recipe:
    codec: str
    container: str
    bit_rate: int | None
    codec_options: dict[str, str] = field(default_factory=dict)
    container_options: dict[str, str] = field(default_factory=dict)
    gain: float = 1.0


# LAME's constant-rate presets turn the sound down to 0.95 (measured here at 32..160 kbit/s); the gain undoes it.
# A second is the Ogg muxer's own page length: far too long a wait for a listener, so one page per packet.
_RECIPES: Final = {
    "mp3": _Recipe("libmp3lame", "mp3", 64_000, {}, {"write_xing": "0", "id3v2_version": "0"}, 1 / 0.95),
    "opus": _Recipe("libopus", "ogg", 32_000, {"application": "audio", "frame_duration": "20"}, {"page_duration": "20000"}),
    "aac": _Recipe("aac", "adts", 64_000),
    "flac": _Recipe("flac", "flac", None, {}, {"metadata_header_padding": "0"}),
}


class _Sink:
    """What the muxer writes into. Having no ``seek`` is what makes it a stream."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


class AvEncoder:
    """``encode.Encoder`` for the names of ``_RECIPES``."""

    heavy = True

    def __init__(self, name: str, rate: int) -> None:
        try:
            import av
        except ImportError:
            raise MissingExtra(f"writing {name}") from None
        self._av: Any = av
        recipe = _RECIPES[name]
        rates = av.codec.Codec(recipe.codec, "w").audio_rates
        if rates is not None and rate not in rates:
            raise UnsupportedFormat(f"{name} has no sample rate of {rate} Hz (it has {', '.join(map(str, sorted(rates)))})")
        self.content_type = CONTENT_TYPES[name]
        self._rate = rate
        self._gain = recipe.gain
        self._fed = 0
        self._sink = _Sink()
        options = {"flush_packets": "1", **recipe.container_options}
        self._container: Any = av.open(self._sink, "w", format=recipe.container, options=options)
        self._stream: Any = self._container.add_stream(recipe.codec, rate=rate, options=recipe.codec_options)
        self._stream.layout = "mono"
        self._stream.time_base = Fraction(1, rate)
        if recipe.bit_rate:
            self._stream.bit_rate = recipe.bit_rate

    def feed(self, samples: NDArray[np.float32]) -> bytes:
        if len(samples):
            # A NaN out of a model would end the stream in some encoders; it is silence, as in pcm.
            clean = np.clip(np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
            planar = np.ascontiguousarray(clean * self._gain, dtype=np.float32)[None, :]
            frame = self._av.AudioFrame.from_ndarray(planar, format="fltp", layout="mono")
            frame.sample_rate = self._rate
            frame.time_base = Fraction(1, self._rate)
            frame.pts = self._fed
            self._fed += len(samples)
            for packet in self._stream.encode(frame):
                self._container.mux(packet)
        return self._sink.take()

    def finish(self) -> bytes:
        if not self._fed:
            # No player opens a file without a packet; a blink of silence is the shortest one that all open.
            self._sink.write(self.feed(np.zeros(self._rate // 50, dtype=np.float32)))
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        self._container.close()
        return self._sink.take()
