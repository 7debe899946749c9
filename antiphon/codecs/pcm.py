"""Signed 16-bit little-endian PCM <-> float32 in [-1, 1).

One scale both ways (1/32768), so that every 16-bit sample survives a round trip unchanged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE = 32768.0


def from_s16(data: bytes | bytearray | memoryview) -> NDArray[np.float32]:
    """Whole samples as float32 [n] in [-1, 1). Raises ``ValueError`` for an odd number of bytes."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(SCALE)


def to_s16(samples: NDArray[np.floating]) -> bytes:
    """float [n] as s16le, rounded to nearest (ties to even) and clipped; NaN becomes silence."""
    scaled = np.rint(np.asarray(samples, dtype=np.float32) * np.float32(SCALE))
    np.nan_to_num(scaled, copy=False, nan=0.0, posinf=32767.0, neginf=-32768.0)
    clipped: NDArray[np.float32] = np.clip(scaled, -32768.0, 32767.0)
    return clipped.astype("<i2").tobytes()


class PcmDecoder:
    """s16le bytes in pieces of any length -> float32.

    A sample that is split over two pieces is carried: an odd byte must neither be dropped nor shift what follows.
    """

    def __init__(self) -> None:
        self._odd = b""

    @property
    def pending(self) -> int:
        """Bytes held back: 0 or 1."""
        return len(self._odd)

    def feed(self, data: bytes) -> NDArray[np.float32]:
        """The samples that ``data`` completes, float32 [n], perhaps none."""
        if self._odd:
            data = self._odd + data
        whole = len(data) & ~1
        self._odd = bytes(data[whole:])
        return from_s16(memoryview(data)[:whole])

    def reset(self) -> None:
        """Forget a held byte (the stream starts anew)."""
        self._odd = b""
