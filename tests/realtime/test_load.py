"""Under load partial transcripts step back first, then early answers; and come back."""

from __future__ import annotations

from antiphon.realtime.load import Bounds, Load
from antiphon.session.events import Spare
from antiphon.session.features import Features
from tests.realtime.conversing import hush, serving, talking, voice
from tests.realtime.stubs import StubClient


def test_partials_go_first_then_early_answers_and_both_come_back() -> None:
    load = Load(Bounds(partials=1, early=2))
    told: list[list[Spare]] = [[] for _ in range(4)]
    members = [load.join(t.append) for t in told]
    for member in members[:3]:
        member.set(True)
        member.set(True)  # twice is once
    assert told[3] == [Spare(partials=False), Spare(partials=False, early=False)]
    late: list[Spare] = []
    load.join(late.append)
    assert late == [Spare(partials=False, early=False)]
    for member in members[:3]:
        member.leave()
        member.leave()
    assert load.busy == 0 and load.spare == Spare()
    assert told[3][2:] == [Spare(partials=False), Spare()] and told[0] == told[3][:2]


async def test_a_busy_server_answers_only_when_the_turn_is_over() -> None:
    client = StubClient()
    async with serving(client, features=Features()) as running, talking(running) as talk:
        running.doors.load._bounds = Bounds(partials=0, early=0)
        await talk.say_hello()
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.8))
        await talk.until("response.done")
        assert [w.request.listener for w in client.answers()] == ["confirmed"]
    assert running.doors.load.busy == 0
