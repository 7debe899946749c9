"""Test signals and what is measured of them; nothing of the package under test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def sine(rate: int, seconds: float, hz: float = 1000.0, level: float = 0.5) -> F32:
    t = np.arange(round(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * hz * t)).astype(np.float32)


def rms_db(x: F32) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(np.square(x, dtype=np.float64))) + 1e-12))


def frequency(x: F32, rate: int) -> float:
    """The strongest line, by a windowed FFT and parabolic interpolation of its peak (dB)."""
    spectrum = 20 * np.log10(np.abs(np.fft.rfft(x * np.hanning(len(x)), 8 * len(x))) + 1e-12)
    k = int(np.argmax(spectrum))
    a, b, c = spectrum[k - 1 : k + 2]
    return float((k + 0.5 * (a - c) / (a - 2 * b + c)) * rate / (8 * len(x)))


def distortion_db(x: F32, rate: int, hz: float) -> float:
    """Everything that is not the line at ``hz``, relative to it (least squares fit of one sine)."""
    t = np.arange(len(x)) / rate
    basis = np.stack([np.sin(2 * np.pi * hz * t), np.cos(2 * np.pi * hz * t), np.ones(len(x))], axis=1)
    fit = basis @ np.linalg.lstsq(basis, x.astype(np.float64), rcond=None)[0]
    return rms_db((x - fit).astype(np.float32)) - rms_db(fit.astype(np.float32))


def steady(x: F32, rate: int, ms: float = 20.0) -> F32:
    """Without the ends, where filters and codecs ring."""
    n = int(rate * ms / 1000)
    return x[n:-n]
