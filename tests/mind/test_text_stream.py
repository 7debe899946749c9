"""Whole characters only, and nothing of a stop string, wherever the pieces are cut. Oracle: the whole text at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.pipelines.engines.llama_cpp.text_stream import TextStream


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@given(
    st.text(alphabet="abé😀語 .", max_size=30),
    st.lists(st.text(alphabet="ab.😀", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_any_cut_says_the_text_before_the_first_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    stream = TextStream(stops)
    said = [stream.push(p) for p in pieces(text.encode(), cuts)]
    said.append(stream.finish())
    first = min((i for i in (text.find(s) for s in stops) if i >= 0), default=-1)
    assert "".join(said) == (text[:first] if first >= 0 else text)
    assert stream.stopped == (first >= 0)


def test_a_stop_string_that_never_came_is_text_after_all() -> None:
    stream = TextStream(["###"])
    assert stream.push(b"a##") == "a"
    assert stream.push(b"b#") == "##b"
    assert stream.finish() == "#"


def test_half_a_character_is_never_said() -> None:
    stream = TextStream()
    assert stream.push("é".encode()[:1]) == ""
    assert stream.finish() == ""
    assert TextStream().push(b"\xff") == "\ufffd"


@pytest.mark.parametrize("stop", [[], [""]])
def test_an_empty_stop_string_stops_nothing(stop: list[str]) -> None:
    assert TextStream(stop).push(b"abc") == "abc"
