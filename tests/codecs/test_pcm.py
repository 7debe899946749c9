import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.codecs.pcm import PcmDecoder, from_s16, to_s16


def test_every_sample_survives_a_round_trip() -> None:
    every = np.arange(-32768, 32768, dtype="<i2").tobytes()
    assert to_s16(from_s16(every)) == every


def test_values_are_the_ones_of_the_definition() -> None:
    assert from_s16(b"\x00\x80\xff\x7f\x00\x40").tolist() == [-1.0, 32767 / 32768, 0.5]
    assert (
        to_s16(np.array([1.0, -1.0, 2.0, -2.0, 0.0, np.nan, np.inf, -np.inf]))
        == np.array([32767, -32768, 32767, -32768, 0, 0, 32767, -32768], dtype="<i2").tobytes()
    )


def test_rounding_is_to_nearest_not_towards_zero() -> None:
    assert np.frombuffer(to_s16(np.array([0.6, -0.6, 1.4, -1.4]) / 32768), dtype="<i2").tolist() == [1, -1, 1, -1]


@given(st.binary(max_size=4000), st.lists(st.integers(0, 641), max_size=30))
def test_pieces_of_any_length_equal_the_whole(data: bytes, cuts: list[int]) -> None:
    decoder, got, at = PcmDecoder(), [], 0
    for n in [*cuts, len(data)]:
        got.append(decoder.feed(data[at : at + n]))
        at += n
    assert np.concatenate(got).tobytes() == from_s16(data[: len(data) & ~1]).tobytes()
    assert decoder.pending == len(data) % 2


@pytest.mark.parametrize("sizes", [(1, 1), (3, 1, 2), (639, 641), (1, 639, 0, 640)])
def test_a_sample_split_over_appends_shifts_nothing(sizes: tuple[int, ...]) -> None:
    data = np.arange(sum(sizes) // 2, dtype="<i2").tobytes()
    decoder, at, samples = PcmDecoder(), 0, []
    for n in sizes:
        samples += (decoder.feed(data[at : at + n]) * 32768).tolist()
        at += n
    assert samples == list(range(sum(sizes) // 2))


def test_reset_forgets_the_held_byte() -> None:
    decoder = PcmDecoder()
    decoder.feed(b"\x01")
    decoder.reset()
    assert (decoder.feed(b"\x02\x00") * 32768).tolist() == [2.0]
