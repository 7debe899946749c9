"""Streaming encoders: float32 mono in as it is made, the file's bytes out as soon as they exist.

All formats behind one shape, ``Encoder``; ``tests/codecs/test_encode.py`` is its contract. pcm and wav are made here;
mp3, opus, aac and flac by FFmpeg's encoders (``encode_av``, needs PyAV).
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.errors import UnsupportedFormat
from antiphon.codecs.pcm import to_s16

CONTENT_TYPES: Final = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Every format and its media type. ``pcm`` is s16le mono without a header; ``opus`` is in Ogg, ``aac`` in ADTS."""

UNKNOWN_SIZE: Final = 0xFFFFFFFF
"""The length a WAV header carries while nobody knows it."""


class Encoder(Protocol):
    """One stream. ``feed`` never blocks for more than the samples it was given; ``finish`` is called once, last."""

    content_type: str
    heavy: bool
    """Whether ``feed`` costs milliseconds: a caller on an event loop then gives it a thread."""

    def feed(self, samples: NDArray[np.float32]) -> bytes:
        """Float32 [n] mono in; the bytes that are ready, perhaps none."""

    def finish(self) -> bytes:
        """The rest. A stream that was fed nothing still ends as a file that opens (compressed ones hold 20 ms of silence)."""


def encoder(format: str, rate: int) -> Encoder:
    """A new encoder for samples at ``rate`` Hz. ``pcm16`` is another name of ``pcm``.

    Raises ``UnsupportedFormat`` (an unknown name, or a rate that the codec does not have) and ``MissingExtra``.
    """
    name = {"pcm16": "pcm"}.get(format, format)
    if name not in CONTENT_TYPES:
        raise UnsupportedFormat(f"audio format {format!r} is not one of {', '.join(CONTENT_TYPES)}")
    if name == "pcm":
        return PcmEncoder()
    if name == "wav":
        return WavEncoder(rate)
    from antiphon.codecs.encode_av import AvEncoder

    return AvEncoder(name, rate)


def whole(samples: NDArray[np.float32], format: str, rate: int) -> bytes:
    """A whole signal as one file; unlike a stream's, the header of WAV and FLAC then tells the true length."""
    if format == "wav":
        body = to_s16(samples)
        return wav_header(rate, len(body)) + body
    made = encoder(format, rate)
    file = made.feed(samples) + made.finish()
    return _with_length(file, len(samples)) if format == "flac" and len(samples) else file


def _with_length(flac: bytes, samples: int) -> bytes:
    """STREAMINFO's last 36 bits before its checksum: the samples in all (RFC 9639, 8.2), which a stream leaves at 0. Readers
    by libsndfile take that for the longest file there can be."""
    at = len(b"fLaC") + 4 + 10
    packed = int.from_bytes(flac[at : at + 8], "big") >> 36 << 36 | samples
    return flac[:at] + packed.to_bytes(8, "big") + flac[at + 8 :]


def wav_header(rate: int, size: int | None = None) -> bytes:
    """44 bytes of RIFF for s16le mono; ``size`` in bytes of samples, or None when it is not known yet."""
    data = UNKNOWN_SIZE if size is None else size
    riff = UNKNOWN_SIZE if size is None else size + 36
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", riff, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", data)


class PcmEncoder:
    """s16le mono, no header."""

    content_type = CONTENT_TYPES["pcm"]
    heavy = False

    def feed(self, samples: NDArray[np.float32]) -> bytes:
        return to_s16(samples)

    def finish(self) -> bytes:
        return b""


class WavEncoder:
    """One header, with the first bytes, then s16le. A header before every chunk is heard as a click."""

    content_type = CONTENT_TYPES["wav"]
    heavy = False

    def __init__(self, rate: int) -> None:
        self._header = wav_header(rate)

    def feed(self, samples: NDArray[np.float32]) -> bytes:
        header, self._header = self._header, b""
        return header + to_s16(samples)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header
