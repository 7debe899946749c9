"""The decoding rule on token sequences that were really seen (times as numbers; text tokens stand for words)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.pipelines.local.whisper_segments import Verdict, crammed, doubled, judge, timed
from antiphon.pipelines.local.whisper_words import snapped, word_times
from antiphon.pipelines.outputs import Word

T0 = 50_364


def at(seconds: float) -> int:
    return T0 + round(seconds / 0.02)


def texts(tokens: list[int], seconds: float) -> list[list[int]]:
    return [[t for t in part.tokens if t < T0] for part in timed(tokens, T0, seconds)]


def test_two_segments() -> None:
    parts = timed([at(0), 1, 2, at(7.6), at(7.6), 3, 4, at(10.6)], T0, 11.0)
    assert [(round(p.start, 2), round(p.end, 2)) for p in parts] == [(0.0, 7.6), (7.6, 10.6)]
    assert parts[0].tokens == (at(0), 1, 2, at(7.6))


def test_what_begins_behind_the_sound_was_never_said() -> None:
    """ "Not now." of 0.77 s, said again in the silence: <0.00> Not now. <1.00><1.00> Not now. <2.00><2.00>"""
    assert texts([at(0), 1, 2, at(1), at(1), 1, 2, at(2), at(2)], 0.77) == [[1, 2]]
    assert texts([at(0), 1, 2, at(1.36), at(1.36), 1, 2, 3], 1.46) == [[1, 2]]


def test_a_sentence_really_said_twice_stays() -> None:
    assert texts([at(0), 1, 2, 3, at(1), at(1), 1, 2, 3, at(2.4)], 2.48) == [[1, 2, 3], [1, 2, 3]]


def test_ends_are_inside_the_sound() -> None:
    (part,) = timed([at(0), 1, at(4.0)], T0, 2.15)
    assert (part.start, part.end) == (0.0, 2.15)


def test_a_text_without_its_closing_time_ends_with_the_sound() -> None:
    (part,) = timed([at(0.5), 1, 2], T0, 3.0)
    assert (part.start, part.end) == (0.5, 3.0)
    assert timed([at(0), at(5)], T0, 5.0) == []
    assert timed([], T0, 5.0) == []


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(T0, T0 + 1500)), max_size=40), st.floats(0.1, 30))
def test_segments_rise_and_stay_inside(tokens: list[int], seconds: float) -> None:
    parts = timed(tokens, T0, seconds)
    for part in parts:
        assert 0 <= part.start <= part.end <= seconds
        assert any(t < T0 for t in part.tokens)
    said = [t for t in tokens if t < T0]
    kept = [t for p in parts for t in p.tokens if t < T0]
    assert kept == said[: len(kept)], "text is only ever left out at the end"


def verdict(lp: float = -0.3, nsp: float = 0.0, ratio: float = 1.2, whole: bool = True) -> Verdict:
    return judge(avg_logprob=lp, no_speech_prob=nsp, compression_ratio=ratio, whole=whole)


def test_verdicts() -> None:
    assert verdict() is Verdict.GOOD
    assert verdict(lp=-1.2) is Verdict.GOOD, "one word with two times around it"
    assert verdict(lp=-1.5) is Verdict.AGAIN
    assert verdict(ratio=2.5) is Verdict.AGAIN
    assert verdict(whole=False) is Verdict.AGAIN
    assert verdict(lp=-1.1, nsp=0.9) is Verdict.NOTHING
    assert verdict(lp=-0.3, nsp=0.9) is Verdict.GOOD


def test_doubled() -> None:
    assert doubled("Send it to Mr. Smythe. Send it to Mr. Smythe.")
    assert doubled("My name is Bo. My name is Bo")
    assert not doubled("No, no.")
    assert not doubled("Bye bye, bye bye.")
    assert not doubled("ask not what your country can do for you")


def test_crammed() -> None:
    """ "get a dog or cat. I get a dog or cat.", where it was said once in a second and a half: 7 tokens in half a second."""
    first = [at(0), 1, 2, 3, 4, 5, 6, at(1), at(1)]
    assert crammed(timed([*first, 9, 1, 2, 3, 4, 5, 6, at(1.5)], T0, 1.5), T0, 8)
    assert not crammed(timed([*first, 9, 1, 2, 3, 4, 5, 6, at(2.4)], T0, 2.4), T0, 8)
    assert not crammed(timed([*first, 9, 6, at(1.2)], T0, 1.5), T0, 8), "a short word is no second sentence"
    assert not crammed(timed([at(0), *range(9), at(0.5)], T0, 0.5), T0, 8), "there is nothing that it could repeat"


def test_word_times() -> None:
    words = word_times([(" And", 1), (" so", 2), (" on.", 1)], [(0, 0.3), (1, 0.6), (3, 3.0)], 10.0, 3.4)
    assert [(w.word, w.start, w.end) for w in words] == [("And", 10.3, 10.6), ("so", 11.8, 13.0), ("on.", 13.0, 13.4)]
    assert word_times([], [], 0.0, 1.0) == []


def test_words_keep_to_the_voice() -> None:
    voiced = [(0.2, 2.1), (3.3, 5.0)]
    words = [Word("fellow", 1.2, 1.5), Word("Americans", 1.5, 3.2), Word("ask", 2.0, 3.7), Word("um", 2.4, 2.6)]
    times = [(w.start, w.end) for w in snapped(words, voiced)]
    assert times == [(1.2, 1.5), (1.5, 2.16), (3.24, 3.7), (2.4, 2.6)]
    assert snapped(words, []) == words
