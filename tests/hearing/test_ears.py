"""The ears' bookkeeping, with stub networks: order, batches, silence, failures, closing. (Real ones: test_ears_real.)"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from antiphon.pipelines.ears.ears import BACKLOG, RESET_WINDOWS, Ears, Score
from antiphon.pipelines.ears.loudness import Loudness
from antiphon.pipelines.ears.silero import WINDOW, Voice
from tests.hearing.sounds import silence
from tests.hearing.waiting import until


class StubNet:
    """Not a network: p is the window's first sample; the state counts the windows of that voice."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.failing = False

    def score(self, voices: Sequence[Voice], windows: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.failing:
            raise RuntimeError("a network that fails")
        self.batches.append(len(voices))
        for voice in voices:
            voice.state[0, 0] += 1
        return windows[:, 0].copy()


@pytest.fixture
def net() -> StubNet:
    return StubNet()


@pytest.fixture
async def ears(net: StubNet) -> AsyncIterator[Ears]:
    ears = Ears(turns=False, detector=net)
    yield ears
    ears.shut_down()


def windows(*p: float) -> NDArray[np.float32]:
    return np.concatenate([np.full(WINDOW, x, np.float32) for x in p])


async def test_scores_come_in_order_whatever_the_pieces(ears: Ears) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    p = np.linspace(0.01, 0.99, 40, dtype=np.float32)
    sound = windows(*p.tolist())
    rng = np.random.default_rng(0)
    at = 0
    while at < len(sound):
        n = int(rng.integers(1, 1500))
        ear.push(sound[at : at + n])
        at += n
    ear.push(np.full(WINDOW - 1, 0.5, np.float32))  # not a whole window: not scored
    await until(lambda: len(got) == 40)
    await asyncio.sleep(0.02)
    assert [s.end for s in got] == [WINDOW * (i + 1) for i in range(40)]
    assert np.allclose([s.p for s in got], p)
    ear.close()


async def test_sessions_that_wait_together_share_one_inference(ears: Ears, net: StubNet) -> None:
    got: list[list[Score]] = [[] for _ in range(8)]
    places = [ears.open(g.extend) for g in got]
    with ears._lock:  # nobody is scored while they push
        for ear in places:
            ear.inbox.append(windows(0.5))
    places[0].push(np.zeros(1, np.float32))
    await until(lambda: all(got))
    assert max(net.batches) == 8
    assert all(s == [Score(WINDOW, 0.5, WINDOW - 1)] for s in got)


async def test_digital_silence_skips_the_network_and_resets_it_after_two_seconds(ears: Ears, net: StubNet) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    ear.push(windows(0.9))
    ear.push(silence(1.0))
    await until(lambda: len(got) == 32)
    assert ear.voice.state[0, 0] == 1, "a short silence is not forgotten"
    ear.push(silence(1.2))
    await until(lambda: len(got) >= 1 + RESET_WINDOWS)
    assert ear.voice.state[0, 0] == 0
    assert net.batches == [1]
    assert {(s.p, s.loud) for s in got[1:]} == {(0.0, -1)}
    assert ears.stats()["silent"] == len(got) - 1


async def test_a_failing_network_is_counted_and_the_fallback_stands_in(ears: Ears, net: StubNet) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    net.failing = True
    t = np.arange(20 * WINDOW) / 16_000
    ear.push((0.3 * np.sin(2 * np.pi * 200 * t)).astype(np.float32))
    await until(lambda: len(got) == 20)
    stats = ears.stats()
    assert stats["failures"] == 1 and stats["fallback"] == 20 and stats["windows"] == 20
    net.failing = False
    ears._retry_at = 0.0
    ear.push(windows(0.25))
    await until(lambda: len(got) == 21)
    assert got[-1].p == 0.25 and ears.stats()["fallback"] == 20


async def test_a_backlog_is_bounded(ears: Ears) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    ear.push(np.full((BACKLOG + 50) * WINDOW, 0.5, np.float32))
    await until(lambda: len(got) == BACKLOG + 50)
    assert ears.stats()["overrun"] == 50
    assert got[-1].end == (BACKLOG + 50) * WINDOW


async def test_nothing_is_called_after_close(ears: Ears) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    ear.push(windows(*[0.5] * 30))
    for _ in range(200):  # blocking on purpose: the scores wait for the loop when the ear is closed
        time.sleep(0.01)  # noqa: ASYNC251
        if ears.stats()["windows"] == 30:
            break
    time.sleep(0.02)  # noqa: ASYNC251
    ear.close()
    ear.close()
    ear.push(windows(0.5))
    ear.score_turn(windows(0.5), lambda p: got.append(p))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert got == []
    assert ears.stats()["sessions"] == 0


async def test_what_is_faint_while_the_agent_speaks_is_no_speech(ears: Ears) -> None:
    got: list[Score] = []
    ear = ears.open(got.extend)
    ear.push(windows(0.8))  # the user's own level
    faint, loud = windows(*[0.09] * 5), windows(*[0.6] * 2)
    faint[::WINDOW] = 0.9  # what the stub takes for p
    ear.expect_echo(4 * WINDOW)
    ear.push(np.concatenate([loud, faint]))
    await until(lambda: len(got) == 8)
    assert [round(s.p, 2) for s in got] == [0.8, 0.6, 0.6, 0.2, 0.2, 0.9, 0.9, 0.9]
    assert [s.loud for s in got[3:5]] == [-1, -1]
    assert ears.stats()["echo"] == 2
    ear.expect_echo(10 * WINDOW)
    ear.expect_echo(0)
    ear.push(faint)
    await until(lambda: len(got) == 13)
    assert ears.stats()["echo"] == 2


async def test_without_smart_turn_the_answer_is_none(ears: Ears) -> None:
    told: list[float | None] = []
    ear = ears.open(lambda scores: None)
    ear.score_turn(windows(0.5), told.append)
    assert told == [], "never from inside the call"
    await until(lambda: told)
    assert told == [None] and ears.stats()["turns_refused"] == 1


async def test_a_session_whose_loop_died_does_not_stop_the_others(ears: Ears) -> None:
    async def visit() -> None:
        ears.open(lambda scores: None).push(windows(0.5))

    await asyncio.to_thread(lambda: asyncio.run(visit()))
    got: list[Score] = []
    ears.open(got.extend).push(windows(0.5, 0.6))
    await until(lambda: len(got) == 2)


@given(st.lists(st.floats(2**-9, 1.0, width=32), min_size=1, max_size=8), st.floats(0.5, 1.0))
@settings(deadline=None)
def test_loud_is_within_34_db_of_recent_speech(levels: list[float], p: float) -> None:
    """Blocks of constant level: the last that reaches 2 % of the loudest, by hand."""
    levels = (levels + [levels[-1]] * 8)[:8]
    window = np.repeat(np.array(levels, np.float32), 64)
    loud = Loudness().last_loud(window, 1024, p)
    reference = max(*levels, 0.01)
    last = max(i for i, level in enumerate(levels) if level > 0.02 * reference * (1 + 1e-6))
    assert loud == 1024 + 64 * (last + 1) - 1


def test_loudness_follows_a_softer_voice() -> None:
    loudness = Loudness()
    loudness.last_loud(np.full(WINDOW, 0.5, np.float32), 0, 1.0)
    soft = np.full(WINDOW, 0.008, np.float32)  # -36 dB: below the mark at first
    assert loudness.last_loud(soft, 0, 0.9) == -1
    for _ in range(200):
        last = loudness.last_loud(soft, 0, 0.9)
    assert last == WINDOW - 1
