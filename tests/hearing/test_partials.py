"""What is shown is never taken back, and is right on a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.pipelines.local.partials import Partials


def test_two_readings_must_agree() -> None:
    partials = Partials()
    assert partials.read("And so") == ""
    assert partials.read("And so my fell") == "And so"
    assert partials.read("and so, my fellow Americans") == " my"
    assert partials.text == "And so my"
    assert partials.end("And so, my fellow Americans, ask.") == " fellow Americans, ask."
    assert partials.text == "And so my fellow Americans, ask."


def test_a_word_heard_differently_later_stays_as_it_was_shown() -> None:
    partials = Partials()
    partials.read("I like tea with milk")
    assert partials.read("I like tea with milk and") == "I like tea with milk"
    assert partials.read("Eye like tea with milk and sugar") == ""  # the two readings disagree from the start
    assert partials.read("Eye like tea with milk and sugar please") == " and sugar"


def test_another_sentence_altogether_shows_nothing_more() -> None:
    partials = Partials()
    partials.read("I like tea with")
    partials.read("I like tea with milk")
    for _ in range(2):
        assert partials.read("Light a tree which is milled for paper") == ""
    assert partials.end("Light a tree which is milled for paper") == ""


@given(st.lists(st.lists(st.sampled_from(["a", "B", "c,"]), max_size=6).map(" ".join), max_size=8))
def test_shown_text_only_grows_and_every_word_was_read_twice(readings: list[str]) -> None:
    partials = Partials()
    shown = ""
    for before, now in zip(["", *readings], readings, strict=False):
        new = partials.read(now)
        shown += new
        assert partials.text == shown
        if new:
            count = len(shown.split())
            fresh = len(new.split())
            bare = [[w.lower().strip(",") for w in r.split()[count - fresh : count]] for r in (before, now, shown)]
            assert bare[0] == bare[1] == bare[2]


@pytest.mark.real
def test_on_a_growing_recording(recogniser: Any, vad: Any, clip: Callable[[str], Any]) -> None:
    from antiphon.pipelines.local.reading import Reading
    from antiphon.pipelines.local.readings import read
    from antiphon.pipelines.requests import Transcription

    sound = clip("jfk.flac")
    partials = Partials()
    shown = ""
    for end in (5.0, 6.5, 8.0, 9.5, 11.0):
        text = read(Reading(recogniser, vad, sound[: int(end * 16_000)], Transcription(language="en"))).text
        new = partials.read(text)
        shown += new
    said = "and so my fellow americans ask not what your country can do for you ask what you can do for your country"
    words = [word.lower().strip(",.:;!?") for word in shown.split()]
    assert len(words) >= 15
    assert sum(a == b for a, b in zip(words, said.split(), strict=False)) >= len(words) - 1
