"""Noises that are not speech, made from arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
Sound = NDArray[np.float32]


def pink(seconds: float, dbfs: float, seed: int = 1) -> Sound:
    """1/f noise at that root mean square level."""
    n = int(seconds * RATE)
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(size=n))
    k = np.arange(len(spectrum))
    k[0] = 1
    noise = np.fft.irfft(spectrum / np.sqrt(k), n)
    return (noise / np.sqrt(np.square(noise).mean()) * 10 ** (dbfs / 20)).astype(np.float32)


def keyboard(seconds: float, seed: int = 1) -> Sound:
    """Key strokes, each a pressed and a released click of decaying noise, over a quiet room."""
    rng = np.random.default_rng(seed)
    sound = pink(seconds, -60, seed)
    at = 0
    while at < len(sound) - 4000:
        at += int(RATE * rng.uniform(0.08, 0.3))
        for delay, level in ((0, 0.15), (int(0.06 * RATE), 0.08)):
            click = (rng.normal(size=400) * np.exp(-np.arange(400) / 60) * level).astype(np.float32)
            room = sound[at + delay : at + delay + 400]
            room += click[: len(room)]
    return sound


def hum(seconds: float) -> Sound:
    """Mains at 50 Hz and its third harmonic."""
    t = np.arange(int(seconds * RATE)) / RATE
    return (0.02 * np.sin(2 * np.pi * 50 * t) + 0.01 * np.sin(2 * np.pi * 150 * t)).astype(np.float32)


def silence(seconds: float) -> Sound:
    return np.zeros(int(seconds * RATE), np.float32)
