"""Frames -> waveform, a few frames at a time, equal to the whole.

The algorithm is hibari's (hibari-tts 0.2.1, ``dsp.py``): a band-limited pulse train over f0 shaped by the harmonic part,
plus shaped noise, plus a free part, one inverse short-time Fourier transform (1200 points, hop 300, Hann, 24 kHz). It is
local to the frame but for three things, which are carried from block to block: the phase of the pulses (a running sum over
f0), the overlap of three frames, and the reflection at both ends.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from hibari import dsp
from numpy.typing import NDArray

from antiphon.pipelines.local.spoken import Frames

Samples = NDArray[np.float32]
HOP, N_FFT, RATE = dsp.HOP, dsp.N_FFT, dsp.SR
_OVERLAP = N_FFT // HOP
_EDGE = N_FFT // 2
_VOICED_HZ, _HIGHEST_HZ = 40.0, 11_000.0


class Pulses:
    """The pulse train of a clause, made as far as it is asked for.

    Every harmonic below 11 kHz at unit amplitude: sum_{h<=H} cos(h t) = sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2.
    """

    def __init__(self, f0: Samples) -> None:
        self._f0 = np.pad(np.asarray(f0, np.float32), 1, mode="edge")
        self._frames = len(f0)
        self._made = 0
        self._cycles = 0.0  # running sum of f0 in float64, as one cumulative sum over the clause would have it
        self._padded = np.zeros(self._frames * HOP + 2 * _EDGE, np.float32)
        after = ((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0
        self._after = after.astype(np.float32)
        self._before = (1.0 - self._after).astype(np.float32)

    def windows(self, first: int, stop: int) -> Samples:
        """[stop - first, 1200]: the samples under the analysis window of each frame, reflected at the clause's ends."""
        self._make(min(self._frames, max(stop + 2, 3)))
        view = np.lib.stride_tricks.sliding_window_view(self._padded, N_FFT)[::HOP]
        return view[first:stop]

    def _make(self, stop: int) -> None:
        if stop <= self._made:
            return
        first, self._made = self._made, stop
        body = self._padded[_EDGE : _EDGE + self._frames * HOP]
        body[first * HOP : stop * HOP] = self._pulses(first, stop)
        if self._frames * HOP <= _EDGE:  # shorter than the reflection: numpy repeats it
            if stop == self._frames:
                self._padded[:] = np.pad(body.copy(), _EDGE, mode="reflect")
            return
        if first == 0:
            self._padded[:_EDGE] = body[_EDGE:0:-1]
        if stop == self._frames:
            self._padded[_EDGE + len(body) :] = body[-2 : -_EDGE - 2 : -1]

    def _pulses(self, first: int, stop: int) -> Samples:
        left, here, right = (self._f0[first + shift : stop + shift, None] for shift in range(3))
        half = HOP // 2
        hertz = np.empty((stop - first, HOP), np.float32)
        hertz[:, :half] = left * self._before[:half] + here * self._after[:half]
        hertz[:, half:] = here * self._before[half:] + right * self._after[half:]
        hertz = hertz.reshape(-1)
        voiced = hertz > _VOICED_HZ
        hertz = np.maximum(hertz, np.float32(_VOICED_HZ))
        running = np.cumsum(np.concatenate([[self._cycles], hertz]), dtype=np.float64)
        self._cycles = running[-1]
        turns = np.modf(running[1:] * (1.0 / RATE))[0]
        phase = (turns * (2 * np.pi)).astype(np.float32)
        order = np.floor(np.float32(_HIGHEST_HZ) / hertz) + np.float32(0.5)
        below = np.sin(phase * np.float32(0.5)) * np.float32(2)
        flat = np.abs(below) <= 2e-3  # the quotient's limit there is its order
        train = np.sin(order * phase)
        train /= np.where(flat, np.float32(1), below)
        train = np.where(flat, order, train) - np.float32(0.5)
        return np.where(voiced, train, np.float32(0))


@lru_cache(maxsize=16)
def _window_sum(first: int, last: int) -> Samples:
    """One over the sum of the squared windows ``first..last`` that overlap a hop: float32 [300]."""
    squared = (dsp.WIN * dsp.WIN).reshape(_OVERLAP, HOP)
    total = np.zeros(HOP, np.float32)
    for part in range(first, last + 1):
        total += squared[part]
    return (1.0 / np.maximum(total, 1e-11)).astype(np.float32)


class Synthesis:
    """The waveform of one clause from frame ``start`` to ``stop``, taken hop by hop (300 samples each)."""

    def __init__(self, frames: Frames) -> None:
        self._net = frames
        self._count = frames.spectra.shape[2]
        self._pulses = Pulses(frames.f0)
        self._stop = frames.stop
        self._next = frames.start  # the next hop to be given
        self._from = max(0, frames.start - 1)  # the first frame that overlaps it
        self._overlap = np.zeros((0, _OVERLAP, HOP), np.float32)

    @property
    def left(self) -> int:
        """Hops that are still to come."""
        return self._stop - self._next

    def take(self, hops: int) -> Samples:
        """The next ``hops`` (or what is left) times 300 samples, float32."""
        first, stop = self._next, min(self._next + hops, self._stop)
        until = min(stop + 2, self._count)
        begin = self._from - len(self._overlap)
        made = np.concatenate([self._overlap, self._make(self._from, until)]) if until > self._from else self._overlap
        # Hop h lies under the frames h-1..h+2, in each of them as its quarter 3..0.
        out = np.zeros((stop - first, HOP), np.float32)
        for quarter in range(_OVERLAP):
            low, high = first + 2 - quarter, stop + 2 - quarter
            a, b = max(low, begin), min(high, until)
            if a < b:
                out[a - low : b - low] += made[a - begin : b - begin, quarter]
        for row in range(stop - first):
            centre = first + row + 2
            out[row] *= _window_sum(max(0, centre - self._count + 1), min(_OVERLAP - 1, centre))
        self._next, self._from = stop, until
        self._overlap = made[-(_OVERLAP - 1) :]
        return out.reshape(-1)

    def _make(self, first: int, stop: int) -> Samples:
        """[stop - first, 4, 300]: the windowed inverse transforms of these frames."""
        part = self._net.spectra[:, :, first:stop]
        spectrum = np.ascontiguousarray(dsp.rfft(self._pulses.windows(first, stop) * dsp.WIN_SRC, 1).T)
        spectrum *= _polar(part[0], np.tanh(part[1]) * np.float32(np.pi))
        spectrum += self._net.noise[:, first:stop] * dsp.ex(part[2])
        spectrum += _polar(part[3], part[4])
        frames = dsp.irfft(spectrum.T, N_FFT, 1) * dsp.WIN
        return np.asarray(frames, np.float32).reshape(stop - first, _OVERLAP, HOP)


def _polar(log_amplitude: Samples, phase: Samples) -> NDArray[np.complex64]:
    out = np.empty(log_amplitude.shape, np.complex64)
    np.cos(phase, out=out.real)
    np.sin(phase, out=out.imag)
    out *= dsp.ex(log_amplitude)
    return out


def levels(spectra: Samples, f0: Samples) -> Samples:
    """The level of each frame in dB below full scale, estimated from every eighth bin (Parseval); good to some 10 dB."""
    harmonic, _, noise, free, _ = spectra[:, ::8]
    voiced = (f0 > _VOICED_HZ) * np.float32(0.02)
    power = (2 * dsp.ex(2 * noise) + dsp.ex(2 * free) + voiced * dsp.ex(2 * harmonic)).sum(0) * 8
    return np.asarray(10 * np.log10(2 * power / N_FFT**2 + 1e-15), np.float32)
