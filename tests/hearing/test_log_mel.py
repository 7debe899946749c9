"""The spectrogram against arithmetic on tones, and against an independent textbook computation."""

from __future__ import annotations

import numpy as np

from antiphon.pipelines.log_mel import BANDS, HOP, RATE, log_mel, mel_filters


def test_shape_and_range() -> None:
    got = log_mel(np.random.default_rng(0).normal(size=RATE).astype(np.float32) * 0.1)
    assert got.shape == (BANDS, RATE // HOP) and got.dtype == np.float32
    assert got.max() - got.min() <= 2.0 + 1e-6  # 8 decades, scaled by 4


def test_digital_silence_is_flat() -> None:
    assert np.allclose(log_mel(np.zeros(RATE, np.float32)), (-10 + 4) / 4)  # log10 of the floor 1e-10


def test_the_filters_have_unit_area_and_cover_the_speech_band() -> None:
    filters = mel_filters()
    width = RATE / 400
    assert filters.shape == (80, 201)
    assert np.allclose(filters[40:].sum(axis=1) * width, 1.0, atol=0.1)  # wide ones: enough bins for the sum
    assert (filters.sum(axis=0)[2:199] > 0).all()


def test_a_tone_lands_in_the_band_of_its_frequency() -> None:
    t = np.arange(RATE) / RATE
    for hz, mel in ((500.0, 500 * 3 / 200), (3000.0, 15 + 27 * np.log(3.0) / np.log(6.4))):
        column = log_mel(np.sin(2 * np.pi * hz * t).astype(np.float32))[:, 50]
        top = 15 + 27 * np.log(8.0) / np.log(6.4)  # mel of 8 kHz
        assert abs(int(column.argmax()) - (mel / top * (BANDS + 1) - 1)) <= 1


def test_equals_a_direct_fourier_sum() -> None:
    """Frame 7 computed from the definition, in double precision."""
    x = np.random.default_rng(3).normal(size=4000).astype(np.float32) * 0.1
    padded = np.concatenate([x[200:0:-1], x, x[-2:-202:-1]]).astype(np.float64)
    n = np.arange(400)
    frame = padded[7 * HOP : 7 * HOP + 400] * (0.5 - 0.5 * np.cos(2 * np.pi * n / 400))
    k = np.arange(201)
    power = np.abs(np.exp(-2j * np.pi * np.outer(k, n) / 400) @ frame) ** 2
    want = np.log10(np.maximum(mel_filters().astype(np.float64) @ power, 1e-10))
    got = log_mel(x)[:, 7] * 4 - 4
    assert np.abs(got - want).max() < 1e-3
