"""Whole characters only, and nothing of a stop string, wherever the pieces are cut. Oracle: the text letter by letter."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.pipelines.engines.llama_cpp.text_stream import TextStream


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def until_a_stop(text: str, stops: list[str]) -> str | None:
    """What was said when the first stop string was complete."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))]
    return None


@given(
    st.text(alphabet="abé😀語 .", max_size=30),
    st.lists(st.text(alphabet="ab.😀", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 200), max_size=12),
)
@example("a😀a", ["😀", "a😀a"], [5])
@example("a😀a", ["😀", "a😀a"], [])
@example("a.b", [".b", "a.b"], [])
def test_any_cut_says_the_text_before_the_first_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    stream = TextStream(stops)
    said = [stream.push(p) for p in pieces(text.encode(), cuts)]
    said.append(stream.finish())
    expected = until_a_stop(text, stops)
    assert "".join(said) == (text if expected is None else expected)
    assert stream.stopped == (expected is not None)


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
