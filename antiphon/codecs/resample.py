"""Sample-rate conversion: a short FIR for live streams, soxr where delay does not matter.

``FirResampler`` is a polyphase windowed-sinc interpolator (Crochiere & Rabiner, "Multirate Digital Signal Processing",
1983, ch. 4; Kaiser window). Its look-ahead is 0.6 ms at a 16 kHz band and scales with the narrower of the two rates; soxr's
streaming mode holds back tens of milliseconds, which a turn cannot afford.

It is *exactly* chunk-independent. Samples are rounded to multiples of 2**-23 and taps to 2**-20, so every product and
every sum is an integer multiple of 2**-43 that a float64 holds without rounding (up to |sum| < 512): the order in which
a library adds them, which depends on array shapes, cannot change a bit.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.errors import UnsupportedRate

LOWEST_RATE = 1_000
HIGHEST_RATE = 384_000
LOOK_AHEAD_S = 0.6e-3
"""Half the filter's length where the narrower of the two rates is 16 kHz."""

_BAND = 0.95  # the -6 dB point, as a part of the narrower Nyquist frequency
_KAISER_BETA = 5.65  # about 60 dB of stop band
_SAMPLE_GRID = float(2**23)
_TAP_GRID = float(2**20)
_MAX_PHASES = 640  # 44.1 kHz <-> 16 kHz has 160; a ratio without a small fraction belongs to soxr
_BLOCK = 8192  # outputs computed at once: bounds the memory of one long feed


def check_rate(rate: int) -> None:
    """Raises ``UnsupportedRate`` outside LOWEST_RATE..HIGHEST_RATE."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise UnsupportedRate(f"a sample rate of {rate} Hz is outside {LOWEST_RATE}..{HIGHEST_RATE} Hz")


class FirResampler:
    """float32 mono at ``src`` Hz -> ``dst`` Hz, fed in pieces of any size.

    Outputs stand where they belong in time (no shift): output n is at input n * src / dst. After ``flush`` the total is
    ceil(inputs * dst / src). Raises ``UnsupportedRate`` for a rate or a ratio it does not do.
    """

    def __init__(self, src: int, dst: int) -> None:
        check_rate(src)
        check_rate(dst)
        divisor = gcd(src, dst)
        self._up, self._down = dst // divisor, src // divisor
        self._same = src == dst
        if self._up > _MAX_PHASES:
            raise UnsupportedRate(f"{src} Hz to {dst} Hz has no short fraction; convert it whole")
        self._taps = np.ones((1, 1)) if self._same else _phases(src, dst, self._up)
        self._half = self._taps.shape[1] // 2
        self.src, self.dst = src, dst
        self.reset()

    @property
    def look_ahead_s(self) -> float:
        """How long an input can be held back before the output at its time is given."""
        return 0.0 if self._same else self._half / self.src

    def reset(self) -> None:
        """Start a new stream."""
        # `_half` zeros stand before the stream; _held[0] is the input of index _start.
        self._held = np.zeros(self._half, dtype=np.float64)
        self._start = -self._half
        self._fed = 0
        self._made = 0

    def feed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """What can be said now, float32 [n], perhaps nothing: an empty answer is not the end of a stream."""
        samples = np.asarray(samples, dtype=np.float32)
        self._fed += len(samples)
        if self._same:
            return samples
        self._push(samples)
        # Output n needs inputs up to floor(n * down / up) + half.
        last = self._start + len(self._held) - 1 - self._half
        return self._make((last * self._up + self._up - 1) // self._down + 1 if last >= 0 else 0)

    def flush(self) -> NDArray[np.float32]:
        """The rest of the stream, as if silence followed; the next ``feed`` starts a new one."""
        if self._same:
            self.reset()
            return np.zeros(0, dtype=np.float32)
        total = -(-self._fed * self._up // self._down)
        self._push(np.zeros(self._half + 1, dtype=np.float32))
        rest = self._make(total)
        self.reset()
        return rest

    def _push(self, samples: NDArray[np.float32]) -> None:
        on_grid = np.rint(samples.astype(np.float64) * _SAMPLE_GRID) / _SAMPLE_GRID
        self._held = np.concatenate((self._held, on_grid))

    def _make(self, upto: int) -> NDArray[np.float32]:
        """Outputs [_made, upto)."""
        pieces = []
        while self._made < upto:
            stop = min(upto, self._made + _BLOCK)
            position = np.arange(self._made, stop, dtype=np.int64) * self._down
            first = position // self._up - self._half - self._start
            windows = np.lib.stride_tricks.sliding_window_view(self._held, self._taps.shape[1])[first]
            pieces.append(np.einsum("ij,ij->i", windows, self._taps[position % self._up]).astype(np.float32))
            self._made = stop
        oldest = self._made * self._down // self._up - self._half
        drop = min(max(oldest - self._start, 0), len(self._held))
        self._held = self._held[drop:]
        self._start += drop
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)


@lru_cache(maxsize=32)
def _phases(src: int, dst: int, up: int) -> NDArray[np.float64]:
    """Taps [up, 2 * half + 1]: row p weighs the inputs around the output that lies p / up samples after one of them."""
    narrow = min(src, dst)
    half = max(2, round(LOOK_AHEAD_S * src * 16_000 / narrow))
    cutoff = _BAND * narrow / src  # 1 is the input's Nyquist frequency
    distance = np.arange(-half, half + 1)[None, :] - np.arange(up)[:, None] / up
    inside = np.clip(1 - (distance / (half + 0.5)) ** 2, 0.0, None)
    window = np.i0(_KAISER_BETA * np.sqrt(inside)) / np.i0(_KAISER_BETA) * (np.abs(distance) <= half + 0.5)
    taps = cutoff * np.sinc(cutoff * distance) * window
    taps /= taps.sum(axis=1, keepdims=True)  # each phase passes a constant unchanged: no ripple at the output rate
    on_grid = np.rint(taps * _TAP_GRID)
    middle = np.argmax(on_grid, axis=1)
    on_grid[np.arange(up), middle] += _TAP_GRID - on_grid.sum(axis=1)
    result: NDArray[np.float64] = on_grid / _TAP_GRID
    result.setflags(write=False)
    return result


def convert(samples: NDArray[np.float32], src: int, dst: int) -> NDArray[np.float32]:
    """A whole signal, float32 [n] mono, by soxr at high quality. Raises ``UnsupportedRate``."""
    import soxr

    check_rate(src)
    check_rate(dst)
    samples = np.asarray(samples, dtype=np.float32)
    if src == dst or not len(samples):
        return samples
    result: NDArray[np.float32] = soxr.resample(samples, src, dst, quality="HQ").astype(np.float32, copy=False)
    return result
