"""What is read of a recording, and where it is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.local.windows import LONGEST_S, SCORED, SHORTEST_S, Span, cut, plan, speech, voiced
from tests.hearing.sounds import RATE

SECOND = RATE // SCORED  # windows, rounded down


def test_nobody_speaks() -> None:
    assert speech([], 0) == []
    assert speech([0.01] * 100, 100 * SCORED) == []
    assert speech([0.01] * 50 + [0.4] + [0.01] * 50, 101 * SCORED) == [], "one window that is not sure is a click"


def test_room_is_left_around_speech() -> None:
    scores = [0.0] * 100 + [0.9] * 50 + [0.0] * 100
    (span,) = speech(scores, 250 * SCORED)
    assert span == Span(100 * SCORED - 4800, 150 * SCORED + 4800)


def test_a_short_pause_stays_inside_and_a_long_one_is_left_out() -> None:
    talk, short, long = [0.9] * 40, [0.0] * (2 * SECOND), [0.0] * (5 * SECOND)
    assert len(speech(talk + short + talk, 200 * SCORED)) == 1
    assert len(speech(talk + long + talk, 300 * SCORED)) == 2


def test_a_long_span_is_cut_where_it_is_quiet() -> None:
    sound = np.full(20 * RATE, 0.1, np.float32)
    sound[int(9.8 * RATE) : int(10.2 * RATE)] = 0.0
    first, second = cut(sound, Span(0, len(sound)))
    assert 9.8 * RATE <= first.end <= 10.2 * RATE
    assert (first.start, first.end, second.end) == (0, second.start, len(sound))


@given(st.integers(1, 100 * RATE), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_pieces_make_the_span_again(total: int, seed: int) -> None:
    sound = np.repeat(np.random.default_rng(seed).normal(size=total // 800 + 1).astype(np.float32), 800)[:total]
    pieces = plan(sound, [Span(0, total)])
    assert pieces[0].start == 0 and pieces[-1].end == total
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert all(0 < p.seconds <= LONGEST_S for p in pieces)
    if len(pieces) > 1:
        assert min(p.seconds for p in pieces) >= min(SHORTEST_S, LONGEST_S / 2) - 0.2


def test_stretches_of_voice() -> None:
    scores = [0.0] * 10 + [0.9] * 10 + [0.0] * 5 + [0.9] * 5 + [0.0] * 20 + [0.9]
    assert [(round(a, 3), round(b, 3)) for a, b in voiced(scores)] == [(0.32, 0.96), (1.6, 1.632)]
