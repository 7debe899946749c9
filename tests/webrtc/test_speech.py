"""The loudspeaker queue, sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.realtime.webrtc.speech import EDGE, FADE, FRAME, Speech
from antiphon.session.events import Play


def tone(samples: int, hz: float = 440.0, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(samples) / 24_000)).astype(np.float32)


def put(speech: Speech, pcm: np.ndarray, item: str = "item") -> None:
    speech.play(Play("resp", item, pcm, len(pcm)))


@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=12))
def test_whatever_the_pieces_the_samples_are_the_same_and_every_one_is_counted(sizes: list[int]) -> None:
    total = sum(sizes) // FRAME * FRAME
    signal = tone(sum(sizes))
    speech = Speech()
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        put(speech, signal[start : start + size])
    assert speech.queued == len(signal)
    frames = [speech.frame() for _ in range(total // FRAME)]
    out = np.concatenate([samples for samples, _ in frames]) if frames else np.zeros(0)
    assert np.array_equal(out, signal[:total])
    assert [played for _, played in frames] == [[("item", FRAME * (n + 1))] for n in range(len(frames))]


def test_silence_is_played_while_nothing_waits() -> None:
    samples, played = Speech().frame()
    assert not samples.any() and len(samples) == FRAME and played == []


def test_an_interruption_ends_within_a_frame_by_a_fade_and_no_click() -> None:
    speech = Speech()
    signal = tone(24_000)
    put(speech, signal)
    before = speech.frame()[0]
    speech.clear()
    after = np.concatenate([speech.frame()[0] for _ in range(3)])
    assert np.flatnonzero(after)[-1] < FADE <= FRAME
    whole = np.concatenate((before, after))
    # The tone alone never moves further than this from one sample to the next; a hard cut would.
    assert np.abs(np.diff(whole)).max() <= 1.05 * np.abs(np.diff(signal)).max()
    assert speech.queued == 0


def test_what_was_cleared_is_not_counted_as_played() -> None:
    speech = Speech()
    put(speech, tone(4_800))
    assert speech.frame()[1] == [("item", FRAME)]
    speech.clear()
    assert speech.frame()[1] == []


def test_the_next_answer_follows_a_fade_whole() -> None:
    speech = Speech()
    put(speech, tone(4_800), "old")
    speech.frame()
    speech.clear()
    new = tone(4_800, 330.0)
    put(speech, new, "new")
    out, counts = [], []
    for _ in range(11):
        samples, played = speech.frame()
        out.append(samples)
        counts += played
    assert np.array_equal(np.concatenate(out)[FADE : FADE + 4_800 - EDGE], new[: 4_800 - EDGE])
    assert counts[-1] == ("new", 4_800)


def test_clearing_twice_or_nothing_is_nothing() -> None:
    speech = Speech()
    speech.clear()
    put(speech, tone(50))
    speech.clear()
    speech.clear()
    assert np.count_nonzero(speech.frame()[0]) <= 50
    assert not speech.frame()[0].any()


def test_an_answer_that_runs_dry_does_not_click() -> None:
    speech = Speech()
    signal = tone(2_000, hz=600.0)
    put(speech, signal[:700])
    first = speech.frame()[0]
    second = speech.frame()[0]
    gap = speech.frame()[0]
    put(speech, signal[700:])
    third, played = speech.frame()
    whole = np.concatenate((first, second, gap, third))
    assert not gap.any()
    assert np.abs(np.diff(whole)).max() <= 1.05 * np.abs(np.diff(signal)).max()
    assert played == [("item", 700 + FRAME)]


def test_two_items_in_one_frame_are_counted_apart() -> None:
    speech = Speech()
    put(speech, tone(100), "a")
    put(speech, tone(1_000), "b")
    assert speech.frame()[1] == [("a", 100), ("b", FRAME - 100)]


@pytest.mark.parametrize("samples", [1, EDGE - 1, EDGE, FRAME - 1])
def test_a_short_piece_sounds_once(samples: int) -> None:
    speech = Speech()
    put(speech, np.ones(samples, np.float32))
    out, played = speech.frame()
    assert played == [("item", samples)] and not out[samples:].any() and out[:samples].any()
