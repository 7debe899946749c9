"""The sound in a speech server's answer, whatever it is wrapped in: 24 kHz float32 out.

Raw PCM is asked for, and some servers send something else under that name: a WAV, whose header would be heard as a pop and
whose rate as another pitch, or a compressed file, which would be heard as noise.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.containers import sniff
from antiphon.codecs.errors import UnsupportedRate
from antiphon.codecs.pcm import PcmDecoder
from antiphon.codecs.resample import FirResampler
from antiphon.pipelines.outputs import AUDIO_RATE

HEAD = 64
"""Bytes after which raw PCM is believed to be such."""
MAX_WAV_HEAD = 64 << 10
_BY_NAME = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/aac": "aac", "audio/x-aac": "aac"}
"""Formats that begin like two ordinary samples: believed only where the answer's own header says so too."""
_UNKNOWN_LENGTH = 0x7FFF0000
Samples = NDArray[np.float32]


class NoSpeech(Exception):
    """What came is no sound that can be played; the text says what it is."""


class SpeechBody:
    """One answer's body; ``content_type``: what its header says of it."""

    def __init__(self, content_type: str) -> None:
        self._type = content_type.partition(";")[0].strip().lower()
        self._head = b""
        self._begun = False
        self._left: int | None = None  # bytes of a WAV's sound that are still to come
        self._pcm = PcmDecoder()
        self._resample: FirResampler | None = None
        if self._type.startswith("text/") or self._type.endswith("json"):
            raise NoSpeech(self._type)

    def feed(self, data: bytes) -> Samples:
        """The samples that these bytes complete. Raises ``NoSpeech``."""
        if not self._begun:
            self._head += data
            if len(self._head) < HEAD or not self._begin():
                return np.zeros(0, np.float32)
            data, self._head = self._head, b""
        return self._sound(data)

    def end(self) -> Samples:
        """What was still held back. Raises ``NoSpeech``."""
        made = np.zeros(0, np.float32)
        if not self._begun and self._head:
            if not self._begin():
                raise NoSpeech("a broken WAV")
            made = self._sound(self._head)
        tail = self._resample.flush() if self._resample else np.zeros(0, np.float32)
        return np.concatenate((made, tail))

    def _begin(self) -> bool:
        """Look at the head, and take a WAV's own off it; False while it has not come whole."""
        kind = sniff(self._head)
        if kind == "wav":
            if not self._wav():
                return False
        elif kind and (kind not in _BY_NAME.values() or kind == _BY_NAME.get(self._type) or self._head[:3] == b"ID3"):
            raise NoSpeech(kind)
        self._begun = True
        return True

    def _wav(self) -> bool:
        at, head = 12, self._head
        channels = rate = bits = 0
        while len(head) >= at + 8:
            name, size = struct.unpack_from("<4sI", head, at)
            at += 8
            if name == b"data":
                if (channels, bits) != (1, 16):
                    raise NoSpeech(f"a WAV of {channels} channels of {bits} bits")
                self._head = head[at:]
                self._left = size if 0 < size < _UNKNOWN_LENGTH else None
                self._convert(rate)
                return True
            if name == b"fmt " and len(head) >= at + 16:
                _, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", head, at)
            at += size + size % 2
        if len(head) > MAX_WAV_HEAD:
            raise NoSpeech("a WAV without sound")
        return False

    def _convert(self, rate: int) -> None:
        if rate != AUDIO_RATE:
            try:
                self._resample = FirResampler(rate, AUDIO_RATE)
            except UnsupportedRate as error:
                raise NoSpeech(f"a WAV of {rate} Hz") from error

    def _sound(self, data: bytes) -> Samples:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        samples = self._pcm.feed(data)
        return self._resample.feed(samples) if self._resample else samples
