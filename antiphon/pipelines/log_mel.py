"""Log-mel spectrogram as Whisper was trained on, in numpy.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022 (openai/whisper, audio.py): 25 ms Hann
windows every 10 ms at 16 kHz, power spectrum, 80 Slaney mel bands (Slaney, "Auditory Toolbox", 1998), log10, clipped at
8 below the loudest value, scaled to about [-1, 1].
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
HOP: Final = 160
BANDS: Final = 80
_FFT: Final = 400
_FLOOR: Final = 1e-10
_RANGE: Final = 8.0  # decades kept below the loudest value


def _to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slaney's scale: linear up to 1 kHz (200/3 Hz a mel), then 27 mels for every factor of 6.4."""
    return np.where(hz < 1000.0, hz * 3 / 200, 15 + 27 * np.log(np.maximum(hz, 1000.0) / 1000) / np.log(6.4))


def _to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


@lru_cache(maxsize=1)
def mel_filters() -> NDArray[np.float32]:
    """[80, 201]: triangles of unit area over the bins of a 400-point spectrum at 16 kHz."""
    bins = np.fft.rfftfreq(_FFT, 1 / RATE)
    edges = _to_hz(np.linspace(_to_mel(np.array(0.0)), _to_mel(np.array(RATE / 2)), BANDS + 2))
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling)) * 2 / (right - left)
    return triangles.astype(np.float32)


@lru_cache(maxsize=1)
def _window() -> NDArray[np.float32]:
    return np.hanning(_FFT + 1)[:-1].astype(np.float32)


def log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 [n] at 16 kHz, n > 200 -> float32 [80, n // 160]."""
    padded = np.pad(samples.astype(np.float32, copy=False), _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::HOP][: len(samples) // HOP]
    power = np.abs(np.fft.rfft(frames * _window(), axis=1)).astype(np.float32) ** 2
    mel = np.log10(np.maximum(mel_filters() @ power.T, _FLOOR))
    mel = np.maximum(mel, mel.max() - _RANGE)
    return np.ascontiguousarray((mel + 4.0) / 4.0, dtype=np.float32)
