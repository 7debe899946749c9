import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.codecs.errors import UnsupportedRate
from antiphon.codecs.resample import FirResampler, convert
from tests.codecs.signals import F32, distortion_db, frequency, rms_db, sine, steady

RATES = (8000, 16000, 24000, 44100, 48000)
PAIRS = [(a, b) for a in RATES for b in RATES]


def stream(x: F32, src: int, dst: int, size: int) -> F32:
    resampler = FirResampler(src, dst)
    pieces = [resampler.feed(x[i : i + size]) for i in range(0, len(x), size)]
    return np.concatenate([*pieces, resampler.flush()])


@pytest.mark.parametrize("frame_ms", [10, 37])
@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_a_sine_keeps_level_pitch_length_and_purity(src: int, dst: int, frame_ms: int) -> None:
    x = sine(src, 1.0)
    y = stream(x, src, dst, src * frame_ms // 1000)
    assert len(y) == dst
    middle = steady(y, dst)
    assert abs(rms_db(middle) - rms_db(steady(x, src))) < 0.5
    assert abs(frequency(middle, dst) - 1000) < 1
    assert distortion_db(middle, dst, 1000) < -50


@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_time_does_not_shift(src: int, dst: int) -> None:
    """Against the sine itself at the output's own sampling times."""
    y = stream(sine(src, 0.5, hz=700.0), src, dst, 999)
    assert np.abs(steady(y - sine(dst, 0.5, hz=700.0)[: len(y)], dst)).max() < 0.01


@pytest.mark.parametrize(("src", "dst"), [(24000, 16000), (16000, 24000), (44100, 16000), (8000, 24000), (48000, 16000)])
@given(seed=st.integers(0, 1000), sizes=st.lists(st.sampled_from([0, 1, 2, 3, 7, 160, 441, 480, 2000]), max_size=40))
@settings(max_examples=40, deadline=None)
def test_chunks_never_change_a_bit(src: int, dst: int, seed: int, sizes: list[int]) -> None:
    x = np.random.default_rng(seed).standard_normal(3000).astype(np.float32)
    resampler, got, at = FirResampler(src, dst), [], 0
    for n in [*sizes, len(x)]:
        got.append(resampler.feed(x[at : at + n]))
        at += n
    got.append(resampler.flush())
    assert np.array_equal(np.concatenate(got), stream(x, src, dst, 3000))


def test_the_delay_is_short() -> None:
    resampler = FirResampler(24000, 16000)
    assert resampler.look_ahead_s < 0.7e-3
    made = len(resampler.feed(sine(24000, 0.02)))
    assert made >= 320 - 10  # all but 0.6 ms of 20 ms


def test_what_lies_above_the_new_band_is_removed() -> None:
    for hz in (10_000, 11_500):
        y = steady(stream(sine(24000, 0.5, hz=hz), 24000, 16000, 480), 16000)
        assert rms_db(y) < rms_db(sine(24000, 0.5)) - 55
    # The console's imaging beeps: 24 -> 48 kHz must not mirror 5 kHz at 19 kHz.
    assert distortion_db(steady(stream(sine(24000, 0.5, hz=5000), 24000, 48000, 480), 48000), 48000, 5000) < -50


def test_a_constant_stays_constant() -> None:
    y = steady(stream(np.full(8000, 0.25, dtype=np.float32), 16000, 24000, 160), 24000)
    assert np.array_equal(y, np.full_like(y, 0.25))


def test_a_stream_can_start_anew_after_flush() -> None:
    resampler = FirResampler(16000, 24000)
    first = np.concatenate([resampler.feed(sine(16000, 0.1)), resampler.flush()])
    second = np.concatenate([resampler.feed(sine(16000, 0.1)), resampler.flush()])
    assert np.array_equal(first, second)
    assert len(resampler.flush()) == 0


def test_a_long_feed_is_computed_in_blocks() -> None:
    x = sine(24000, 3.0)
    assert np.array_equal(stream(x, 24000, 16000, len(x)), stream(x, 24000, 16000, 480))


@pytest.mark.parametrize("rates", [(1, 16000), (16000, 1), (400_000, 16000), (0, 16000), (16001, 16000)])
def test_rates_it_does_not_do_are_named(rates: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedRate, match=str(rates[0] if rates[0] != 16000 else rates[1])):
        FirResampler(*rates)


@pytest.mark.parametrize(("src", "dst"), [(384_000, 16000), (11_025, 16000), (16000, 16000), (44100, 16000)])
def test_convert_whole(src: int, dst: int) -> None:
    y = convert(sine(src, 1.0), src, dst)
    assert abs(len(y) - dst) <= 1
    middle = steady(y, dst)
    assert abs(rms_db(middle) - rms_db(sine(dst, 1.0))) < 0.1
    assert abs(frequency(middle, dst) - 1000) < 1


def test_convert_refuses_and_forgives() -> None:
    assert len(convert(np.zeros(0, dtype=np.float32), 8000, 16000)) == 0
    with pytest.raises(UnsupportedRate):
        convert(np.zeros(10, dtype=np.float32), 1, 16000)
