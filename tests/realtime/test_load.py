"""Under load partial transcripts step back first, then early answers; and come back."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.realtime import doors
from antiphon.realtime.load import Bounds, Load
from antiphon.session.events import Spare
from tests.realtime.conversing import hush, serving, talking, voice
from tests.realtime.rest.conftest import until
from tests.realtime.stubs import StubClient


class Queue:
    """A stage whose requests wait as long as they are told to."""

    def __init__(self) -> None:
        self.requests, self.queued_s = 0, 0.0

    def after(self, *waits: float) -> dict[str, Any]:
        self.requests += len(waits)
        self.queued_s += sum(waits)
        return {"mind": {"requests": self.requests, "queued_s": self.queued_s}, "idle": {"requests": 0, "queued_s": 0.0}}


def test_partials_go_first_then_early_answers_and_both_come_back() -> None:
    load, queue = Load(Bounds(partials=0.05, early=0.2)), Queue()
    told: list[Spare] = []
    leave = load.join(told.append)
    load.sample(queue.after(0.01, 0.02))
    assert told == []
    load.sample(queue.after(0.1, 0.1))
    load.sample(queue.after(0.3, 0.5))
    assert told == [Spare(partials=False), Spare(partials=False, early=False)]
    late: list[Spare] = []
    load.join(late.append)
    assert late == [told[-1]]
    load.sample(queue.after(0.15))  # better, but not by half
    assert load.spare == told[-1]
    load.sample(queue.after(0.04))
    load.sample(queue.after())  # nobody waits for anything
    assert told[2:] == [Spare(partials=False), Spare()]
    leave()
    leave()
    load.sample(queue.after(9.0))
    assert len(told) == 4 and len(load) == 1


def test_who_comes_when_everybody_has_left_finds_no_queue_of_theirs() -> None:
    load, queue = Load(), Queue()
    leave = load.join(lambda spare: None)
    load.sample(queue.after(9.0))
    leave()
    told: list[Spare] = []
    load.join(told.append)
    assert told == [] and load.spare == Spare()


async def test_a_busy_server_answers_only_when_the_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "EVERY_S", 0.05)
    client, queue = StubClient(), Queue()
    monkeypatch.setattr(client, "stats", lambda: {"stages": queue.after(5.0)})
    async with serving(client, load=Load()) as running, talking(running) as talk:
        await talk.say_hello()
        await until(lambda: not running.doors.load.spare.early)
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.8))
        await talk.until("response.done")
        assert [w.request.listener for w in client.answers()] == ["confirmed"]
    assert len(running.doors.load) == 0
