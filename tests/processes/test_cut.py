"""When stages are lost, only the requests that had something in them fail: random graphs by hand, and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.errors import Busy, ConfigError, StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.messages import Event, Feed, Give, ToLane
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.scheduler import SteppedLane
from antiphon.pipelines.stage import Request
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world
from tests.pipelines.test_properties import EXAMPLES, PHASES, drawn, graphs, keep_parts
from tests.processes.stages import HERE, ask, spec
from tests.realtime.rest.conftest import until

LOST = StageFailed("s", "gone", code="server_error", retryable=True)


class Mortal(ByHand):
    """One of its lanes may die: what is sent there is lost, and of what it sent last perhaps a part."""

    dead = ""

    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        super().to_lanes([lane for lane in lanes if lane != self.dead], message)

    def turn(self, lane: str) -> None:
        if lane != self.dead:
            super().turn(lane)

    def die(self, name: str, swallowed: int) -> None:
        self.dead = name
        stages = {s.name for s in self.config.lanes[name]}
        self.lane_that_died = self.lanes.pop(name)
        for other in self.lanes.values():
            of_dead = [m for m in letters(other) if isinstance(m, Feed | Give) and m.source in stages]
            lost = {id(m) for m in of_dead[max(0, len(of_dead) - swallowed) :]}
            for message in [other.mail.get_nowait() for _ in letters(other)]:
                if id(message) not in lost:
                    other.mail.put(message)

    def has_left(self, handle: Handle) -> bool:
        """Every stage of the request that was there had ended, whoever sends to one too, and all that they sent is read."""
        plan = handle.plan
        stages = {s.name for s in self.config.lanes[self.dead]} & set(plan.stages)
        over = stages | {s for s in plan.stages if stages & {*plan.next[s], *plan.stream[s]}}
        riders = {name: lane.riders.get(handle.key) for name, lane in [*self.lanes.items(), (self.dead, self.lane_that_died)]}
        for name in over:
            rider = riders[self.config.stages[name].lane]
            if rider is None or name not in rider.seats or rider.seats[name].state != "closed":
                return False
        waiting = [*self.coordinator._mail, *(m for lane in self.lanes.values() for m in letters(lane))]
        return not any(getattr(m, "source", getattr(m, "stage", "")) in stages for m in waiting)


def letters(lane: SteppedLane) -> list[Any]:
    """What waits in a lane's mail, which stays there."""
    found = [lane.mail.get_nowait() for _ in range(lane.mail.qsize())]
    for message in found:
        lane.mail.put(message)
    return found


@settings(max_examples=EXAMPLES * 5, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(graphs(), st.data())
def test_a_lost_lane_takes_what_was_inside_and_nothing_else(spec: list[dict[str, Any]], data: Any) -> None:
    world = new_world()
    for one in spec[1:]:
        one["side"] = data.draw(st.sampled_from([False, False, True]))
    try:
        config = drawn(spec)
    except ConfigError:
        return
    by_hand = Mortal(config, world)
    terminals = [s["name"] for s in spec if s["terminal"]]
    handles = []
    for i in range(3):
        wanted = data.draw(st.sets(st.sampled_from(terminals), min_size=1))
        script = Script(counts={s["name"]: s["count"] for s in spec})
        request = Request(id=f"r{i}", terminals=tuple(sorted(wanted)), body=script)
        script.streams = config.plan(request).streams
        handles.append(by_hand.coordinator.submit(request))
    seen: dict[Handle, list[Event | End]] = {handle: [] for handle in handles}
    for _ in range(data.draw(st.integers(0, 40))):
        by_hand.turn(data.draw(st.sampled_from(sorted(by_hand.lanes))))
        by_hand.coordinator.turn(world.now)
        for handle, log in seen.items():
            if (event := handle.read()) is not None:
                log.append(event)
        world.now += 0.1
    victim = data.draw(st.sampled_from(sorted(by_hand.lanes)))
    swallowed = data.draw(st.integers(0, 3))
    by_hand.die(victim, swallowed)
    left = [h for h in handles if h.end is None and not swallowed and by_hand.has_left(h)]
    missed = {h: {s for s in h.plan.stages if config.stages[s].lane == victim} for h in handles}
    aside = {name for name, one in config.stages.items() if one.side}
    no_loss = [h for h in handles if missed[h] <= aside and not (missed[h] and set(h.plan.ends.values()) <= aside)]
    by_hand.coordinator.lanes_lost({victim}, LOST)
    by_hand.coordinator.unavailable.update({s.name: "gone" for s in config.stages.values() if s.lane == victim})
    try:
        script = Script(counts={s["name"]: s["count"] for s in spec})
        request = Request(id="later", terminals=tuple(sorted(terminals)), body=script)
        plan = config.plan(request)
        script.streams = plan.streams
        gone = {s for s in plan.stages if config.stages[s].lane == victim}
        handles.append(by_hand.coordinator.submit(request))
        no_loss.append(handles[-1])
        seen[handles[-1]] = []
    except Busy:
        assert gone - aside or set(plan.ends.values()) <= aside
    for handle, rest in by_hand.run(handles, dt=0.1).items():
        seen[handle] += rest
    assert not world.wrong, world.wrong
    assert by_hand.idle, "a request hangs on a lane that is no more"
    for handle, log in seen.items():
        assert sum(isinstance(e, End) for e in log) == 1
        assert handle.end is not None
        if handle.end.reason == "finished":
            ended = sorted(e.terminal for e in log if isinstance(e, Event) and e.last)
            assert ended == sorted(handle.plan.ends), "finished without all of it"
        else:
            assert isinstance(handle.end.error, StageFailed) and handle.end.error.retryable
    assert {h.end.reason for h in left + no_loss if h.end} <= {"finished"}, "what had left it, or can do without, goes on"


def test_who_still_sends_to_a_lost_stage_does_not_wait_for_its_credit() -> None:
    """The receiver had ended early, so nobody misses anything of it; but it gives no credit back any more."""
    world = new_world()
    stages = [
        stage("talks", "ar", lane="here", stream_to=("listens",), credits=1, terminal="talk"),
        stage("listens", "cut", lane="there", terminal="enough"),
    ]
    by_hand = Mortal(PipelineConfig("early", "talks", stages), world)
    script = Script(counts={"talks": 9, "listens": 0}, streams={"listens": frozenset({"talks"})})
    handle = by_hand.coordinator.submit(Request(id="r", terminals=("enough", "talk"), body=script))
    while "enough" in handle.left:
        by_hand.as_threads_would()
        handle.read()
    assert handle.end is None
    by_hand.die("there", 0)
    by_hand.coordinator.lanes_lost({"there"}, LOST)
    log = by_hand.run([handle])[handle]
    assert isinstance(log[-1], End) and log[-1].reason == "failed" and by_hand.idle


def test_a_result_that_has_come_is_not_missed() -> None:
    """A fan-in has one of its two Results when the stage that made it is lost; the other is still being made."""
    world = new_world()
    stages = [
        stage("pre", lane="here", next=("quick", "slow")),
        stage("quick", lane="there", next=("both",)),
        stage("slow", lane="here", delay_s=0.5, next=("both",)),
        stage("both", lane="here", merge_fn=keep_parts, terminal="out"),
    ]
    by_hand = Mortal(PipelineConfig("fan", "pre", stages), world)
    assert_finishes(by_hand, Script(), turns=4)


def test_nobody_waits_for_the_result_of_a_side_stage_that_is_lost() -> None:
    """A fan-in has one of its two Results; the other would have come from the side branch."""
    world = new_world()
    stages = [
        stage("pre", lane="here", next=("quick", "aside")),
        stage("quick", lane="here", next=("both",)),
        stage("aside", lane="there", side=True, delay_s=50.0, next=("both",)),
        stage("both", lane="here", merge_fn=keep_parts, terminal="out"),
    ]
    by_hand = Mortal(PipelineConfig("fan", "pre", stages), world)
    assert_finishes(by_hand, Script(), turns=6)


def test_nobody_waits_for_the_chunks_of_a_side_stage_that_is_lost() -> None:
    world = new_world()
    stages = [
        stage("pre", lane="here", next=("quick", "aside")),
        stage("quick", lane="here", next=("listens",)),
        stage("aside", "ar", lane="there", side=True, delay_s=1.0, stream_to=("listens",)),
        stage("listens", "xd", lane="here", terminal="out"),
    ]
    by_hand = Mortal(PipelineConfig("heard", "pre", stages), world)
    script = Script(counts={"aside": 60, "listens": 60}, streams={"listens": frozenset({"aside"})})
    assert_finishes(by_hand, script, turns=6)


def assert_finishes(by_hand: Mortal, script: Script, turns: int) -> None:
    """A request ends as it should though "there" is lost after so many turns; it has not ended before."""
    handle = by_hand.coordinator.submit(Request(id="r", terminals=("out",), body=script))
    for _ in range(turns):
        by_hand.as_threads_would()
    assert handle.end is None and "out" in handle.left
    by_hand.die("there", 0)
    by_hand.coordinator.lanes_lost({"there"}, LOST)
    log = by_hand.run([handle])[handle]
    assert isinstance(log[-1], End) and log[-1].reason == "finished" and by_hand.idle


async def whole(generation: Generation) -> list[int]:
    return [event.data.number async for event in generation if not event.last]


@pytest.mark.parametrize("victim", ["source", "double"])
async def test_a_request_goes_on_without_a_process_that_it_has_left(victim: str) -> None:
    """It has passed the victim and waits in the next stage; another is inside the victim; a third comes afterwards."""
    async with Client(ProcessRuntime(spec(place="apart"))) as client:
        slow = {"source": "double", "double": "tail"}[victim]
        passed = client.generate(ask("passed", source={"n": 6}, **{slow: {"step_s": 0.05}}))
        reading = passed.__aiter__()
        first = await anext(reading)  # six fit into the credits of each edge: everything before the slow one is over
        inside = client.generate(ask("inside", source={"n": 10**9, "size": 30_000}))
        async for _ in inside:
            break
        place = client.health()["processes"][f"{victim}.0"]["place"]
        os.kill(int(place.split()[1]), signal.SIGKILL)
        with pytest.raises(StageFailed) as failed:
            await asyncio.wait_for(whole(inside), 10)
        assert failed.value.retryable and failed.value.stage == victim
        assert [first.data.number, *[e.data.number async for e in reading if not e.last]] == [4 * n for n in range(6)]
        line = await asyncio.wait_for(passed.released(), 10)
        assert f"released:{victim}" not in line, "a dead process gives no receipt, and nobody waits for one"
        await asyncio.wait_for(inside.released(), 10)


async def test_a_side_stage_that_dies_is_skipped_and_nobody_waits_for_it() -> None:
    backend, back = ProcessRuntime(PipelineSpec(f"{HERE}:aside")), asyncio.Event()

    async def pause(seconds: float) -> None:
        await back.wait()

    backend._crew.pause = pause
    async with Client(backend) as client:

        async def heard(name: str, *, killing: bool = False) -> tuple[list[int], int, bool]:
            """What "out" said, how much "extra" said, and whether it was skipped."""
            request = GenerateRequest(
                id=name, task="speech", terminals=("out", "extra"), stage_params={"source": {"n": 60, "step_s": 0.005}}
            )
            out: list[int] = []
            extra, skipped = 0, False
            async for event in client.generate(request):
                if event.last:
                    skipped |= event.skipped
                elif event.terminal == "out":
                    out.append(event.data.number)
                else:
                    extra += 1
                    if killing and extra == 5:
                        place = client.health()["processes"]["side.0"]["place"]
                        os.kill(int(place.split()[1]), signal.SIGKILL)
            return out, extra, skipped

        def alone(name: str) -> Generation:
            """Who asks for "extra" and nothing else."""
            return client.generate(ask(name, terminal="extra", source={"n": 10**6, "step_s": 0.005}))

        whole_answer = [2 * n for n in range(60)]
        only = asyncio.create_task(whole(alone("only")))
        out, extra, skipped = await asyncio.wait_for(heard("killed", killing=True), 10)
        assert out == whole_answer and 5 <= extra < 60 and skipped
        assert await asyncio.wait_for(heard("meanwhile"), 10) == (whole_answer, 0, True), (
            "what can be served without it is served"
        )
        with pytest.raises(StageFailed) as failed:
            await asyncio.wait_for(only, 10)
        assert failed.value.retryable, "an empty answer would be a wrong one"
        with pytest.raises(Busy, match="side"):
            alone("refused")
        back.set()
        await until(lambda: set(client.health()["lanes"].values()) == {"ready"}, 20)
        assert await asyncio.wait_for(heard("again"), 10) == (whole_answer, 60, False)
        await asyncio.wait_for(backend.coordinator.drained(), 10)
