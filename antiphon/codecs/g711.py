"""G.711, both laws: 8 kHz, one byte per sample <-> float32.

Written from ITU-T G.711 (segments of doubling step size over 14-bit mu-law and 13-bit A-law magnitudes) as tables over
every code and every 16-bit sample. Python's own ``audioop`` left the standard library in 3.13.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.pcm import SCALE

RATE = 8_000
"""Samples per second of both laws."""

_ULAW_BIAS = 33
_ULAW_TOP = 8159 + _ULAW_BIAS


def ulaw_decode(data: bytes) -> NDArray[np.float32]:
    """mu-law bytes -> float32 [n]."""
    return _ulaw_levels()[np.frombuffer(data, dtype=np.uint8)]


def alaw_decode(data: bytes) -> NDArray[np.float32]:
    """A-law bytes -> float32 [n]."""
    return _alaw_levels()[np.frombuffer(data, dtype=np.uint8)]


def ulaw_encode(samples: NDArray[np.floating]) -> bytes:
    """float [n] -> mu-law bytes, clipped."""
    return _ulaw_codes()[_index(samples)].tobytes()


def alaw_encode(samples: NDArray[np.floating]) -> bytes:
    """float [n] -> A-law bytes, clipped."""
    return _alaw_codes()[_index(samples)].tobytes()


def _index(samples: NDArray[np.floating]) -> NDArray[np.int32]:
    """Samples as 0..65535: where their 16-bit value stands in a table over all of them."""
    scaled = np.rint(np.nan_to_num(np.asarray(samples, dtype=np.float32), nan=0.0) * np.float32(SCALE))
    clipped: NDArray[np.float32] = np.clip(scaled, -32768.0, 32767.0)
    return clipped.astype(np.int32) + 32768


def _every_sample() -> NDArray[np.int32]:
    return np.arange(-32768, 32768, dtype=np.int32)


def _top_bit(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Position of the highest set bit of each positive value."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int32) - 1


@lru_cache(maxsize=1)
def _ulaw_levels() -> NDArray[np.float32]:
    code = ~np.arange(256, dtype=np.int32) & 0xFF  # sent inverted
    segment, step = (code >> 4) & 7, code & 0xF
    magnitude = ((2 * step + _ULAW_BIAS) << segment) - _ULAW_BIAS
    level = np.where(code & 0x80, -magnitude, magnitude) * 4  # 14 bits -> 16
    return (level / SCALE).astype(np.float32)


@lru_cache(maxsize=1)
def _ulaw_codes() -> NDArray[np.uint8]:
    sample = _every_sample() >> 2
    magnitude: NDArray[np.int32] = np.minimum(np.abs(sample) + _ULAW_BIAS, _ULAW_TOP - 1)
    segment = _top_bit(magnitude) - 5
    code = (segment << 4) | ((magnitude >> (segment + 1)) & 0xF)
    return (code ^ np.where(sample < 0, 0x7F, 0xFF)).astype(np.uint8)


@lru_cache(maxsize=1)
def _alaw_levels() -> NDArray[np.float32]:
    code = np.arange(256, dtype=np.int32) ^ 0x55  # sent with every other bit inverted
    segment, step = (code >> 4) & 7, code & 0xF
    # Segment 0 is linear; from 1 on the magnitude has a leading one and doubles with each segment.
    magnitude = np.where(segment == 0, 2 * step + 1, (2 * step + 33) << np.maximum(segment - 1, 0))
    level = np.where(code & 0x80, magnitude, -magnitude) * 8  # 13 bits -> 16
    return (level / SCALE).astype(np.float32)


@lru_cache(maxsize=1)
def _alaw_codes() -> NDArray[np.uint8]:
    sample = _every_sample() >> 3
    magnitude = np.where(sample < 0, -sample - 1, sample)
    segment = np.maximum(_top_bit(np.maximum(magnitude, 1)) - 4, 0)
    step = (magnitude >> np.maximum(segment, 1)) & 0xF
    return (((segment << 4) | step) ^ np.where(sample < 0, 0x55, 0xD5)).astype(np.uint8)
