"""Deadlines, windows and assumed playback, on a fake clock with steps that cost time."""

from __future__ import annotations

import itertools
import random

import pytest

from antiphon.pipelines import coordinator as rules
from antiphon.pipelines.errors import Aborted, Busy, Refused
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.messages import Event
from antiphon.pipelines.stage import Listener, Request
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world


def route(request: Request) -> tuple[str, ...]:
    return tuple(request.body.route)


def one_lane(credits: int = 4096) -> PipelineConfig:
    return PipelineConfig(
        "p",
        "pre",
        [
            stage("pre", next=("asr", "bulk"), route_fn=route, max_open=100),
            stage("asr", next=("think",), max_open=100, max_batch=1),
            stage("think", "ar", terminal="audio", max_open=100, max_batch=1, span_ms=80.0, credits=credits),
            stage("bulk", "ar", terminal="bulk", max_open=100, max_batch=1, credits=4096),
        ],
    )


def submit(by_hand: ByHand, name: str, to: str, terminal: str, listener: Listener, **counts: int) -> Handle:
    return by_hand.coordinator.submit(Request(id=name, terminals=(terminal,), listener=listener, body=Script((to,), counts)))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_below_load_one_nobody_starves(load: float) -> None:
    """Confirmed turns keep coming; a bulk request without a listener still moves, and turns start in time."""
    world = new_world()
    world.step_cost = {"pre": 0.0005, "asr": 0.12, "think": 0.03, "bulk": 0.03}
    by_hand = ByHand(one_lane(), world)
    work = 0.12 + 9 * 0.03
    dice = random.Random(1)
    bulk = submit(by_hand, "bulk", "bulk", "bulk", "none", bulk=500)
    live, first_audio, bulk_at = [bulk], [], []
    arrival, turns = 0.0, 0
    while world.now < 90:
        if world.now >= arrival and arrival < 70:
            turns += 1
            live.append(submit(by_hand, f"t{turns}", "asr", "audio", "confirmed", think=8))
            arrival += dice.expovariate(load / work)
        before = world.now
        by_hand.turn("main")
        by_hand.coordinator.turn(world.now)
        for handle in list(live):
            while (event := handle.read()) is not None:
                if isinstance(event, End):
                    live.remove(handle)
                elif event.terminal == "bulk":
                    bulk_at.append(world.now)
                elif event.index == 0 and not event.last:
                    first_audio.append(world.now - handle.timeline["submitted"])
                    handle.tell(due_in_ms=2000.0, heard_ms=0.0)
        if world.now == before:
            world.now += 0.005
    gaps = [b - a for a, b in itertools.pairwise(bulk_at)]
    assert not world.wrong
    assert len(bulk_at) > 400 * (1 - load)
    assert max(gaps) < 8.0
    first_audio.sort()
    assert len(first_audio) >= turns - 2
    assert first_audio[len(first_audio) // 2] < 1.0


def test_a_confirmed_turn_goes_before_a_request_without_listener() -> None:
    world = new_world()
    by_hand = ByHand(one_lane(), world)
    submit(by_hand, "bulk", "bulk", "bulk", "none", bulk=100)
    for _ in range(20):
        by_hand.turn("main")
    turn = submit(by_hand, "turn", "asr", "audio", "confirmed", think=3)
    for _ in range(6):
        by_hand.turn("main")
        by_hand.coordinator.turn(world.now)
    assert any(isinstance(e, Event) and e.terminal == "audio" for e in turn.events)


def test_who_has_been_given_sound_is_less_urgent_at_once() -> None:
    """Two answers on one lane, 80 ms of sound a step of 5 ms: they take turns, also before anybody is told what was heard."""
    world = new_world()
    world.step_cost = {"think": 0.005}
    by_hand = ByHand(one_lane(), world)
    handles = [submit(by_hand, name, "asr", "audio", "confirmed", think=100) for name in "ab"]
    while world.now < 0.1:  # half of the time between two tellings
        before = world.now
        by_hand.turn("main")
        by_hand.coordinator.turn(world.now)
        world.now += 0.001 * (world.now == before)
    made = [sum(isinstance(e, Event) for e in handle.events) for handle in handles]
    assert min(made) >= 5 and max(made) - min(made) <= 1


def test_where_a_client_tells_nothing_playback_is_assumed() -> None:
    """4 s ahead at most: 80 ms chunks, told each 200 ms."""
    world = new_world()
    by_hand = ByHand(one_lane(), world)
    handle = submit(by_hand, "a", "asr", "audio", "confirmed", think=10_000)
    made = 0
    for _ in range(2000):
        by_hand.as_threads_would()
        by_hand.turn("main")
        while (event := handle.read()) is not None:
            made += isinstance(event, Event)
        world.now += 0.005
    assert 4.0 - rules.SWEEP_S <= made * 0.08 - world.now <= 4.0 + 2 * 0.08


def test_a_held_early_answer_is_not_assumed_to_be_heard() -> None:
    world = new_world()
    by_hand = ByHand(one_lane(), world)
    handle = submit(by_hand, "a", "asr", "audio", "early", think=10_000)
    made = 0
    for _ in range(1000):
        by_hand.as_threads_would()
        by_hand.turn("main")
        while (event := handle.read()) is not None:
            made += isinstance(event, Event)
        world.now += 0.005
    assert made * 80 <= 4000 + 80 * (rules.SWEEP_S / 0.005 + 2)


def test_a_reader_that_takes_nothing_is_aborted() -> None:
    world = new_world()
    by_hand = ByHand(one_lane(credits=4), world)
    handle = submit(by_hand, "a", "asr", "audio", "none", think=100)
    for _ in range(400):
        by_hand.as_threads_would()
        world.now += 0.1
    assert handle.end is not None
    assert isinstance(handle.end.error, Aborted)
    assert handle.end.error.reason == "reader_stalled"
    assert by_hand.idle


def test_a_request_past_the_bound_and_an_id_in_use_are_refused_by_name() -> None:
    world = new_world()
    by_hand = ByHand(one_lane(), world, max_requests=2)
    first = submit(by_hand, "a", "asr", "audio", "none", think=1)
    with pytest.raises(Refused, match="'a' is in use") as refused:
        submit(by_hand, "a", "asr", "audio", "none", think=1)
    assert refused.value.code == "request_id_in_use"
    submit(by_hand, "b", "asr", "audio", "none", think=1)
    with pytest.raises(Busy, match="2 requests are running"):
        submit(by_hand, "c", "asr", "audio", "none", think=1)
    first.abort()
    submit(by_hand, "c", "asr", "audio", "none", think=1)


def test_the_four_moments_of_an_abort_are_recorded_apart() -> None:
    world = new_world()
    by_hand = ByHand(one_lane(), world)
    handle = by_hand.coordinator.submit(
        Request(id="a", terminals=("audio",), body=Script(("asr",), {"think": 100}, fence_s=0.3))
    )
    for _ in range(10):
        by_hand.as_threads_would()
        world.now += 0.01
    asked = world.now
    handle.abort()
    by_hand.run([handle])
    line = handle.timeline
    assert line["asked"] == asked <= line["broadcast"] <= line["closed:main"] < line["released:main"] == line["released"]
    assert line["released"] - asked >= 0.3
