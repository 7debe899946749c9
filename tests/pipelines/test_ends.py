"""How tasks and requests end, each for itself: credits, failing steps, fan-in, late failures, an abort in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from antiphon.pipelines.async_lane import AsyncLane
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End
from antiphon.pipelines.lane import Station
from antiphon.pipelines.messages import Close, Event, Failed, Give, Open, ToCoordinator, ToLane
from antiphon.pipelines.stage import CLIENT, AsyncStage, Chunk, Output, Request
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world


def test_what_a_stage_left_unread_is_no_credit_lost() -> None:
    """It ends with two chunks before its door; its upstream, whose every credit they hold, goes on."""
    config = PipelineConfig(
        "brief",
        "think",
        [
            stage("think", "ar", stream_to=("decode", "brief"), credits=2),
            stage("decode", "xd", terminal="text"),
            stage("brief", "cut", terminal="brief", delay_s=0.2),
        ],
    )
    by_hand = ByHand(config, new_world())
    script = Script(counts={"think": 20, "brief": 1})
    request = Request(id="r", terminals=("text", "brief"), body=script)
    script.streams = config.plan(request).streams
    handle = by_hand.coordinator.submit(request)
    log = by_hand.run([handle])[handle]
    assert log[-1] == End("finished")
    assert sum(isinstance(e, Event) and e.terminal == "text" and not e.last for e in log) >= 20


def test_a_step_that_fails_does_not_fail_who_had_ended_in_it() -> None:
    by_hand = ByHand(PipelineConfig("p", "think", [stage("think", "ar", terminal="text")]), new_world())
    over = Request(id="over", terminals=("text",), body=Script(counts={"think": 0}))
    bad = Request(id="bad", terminals=("text",), body=Script(fail=("think", "step", 0)))
    handles = [by_hand.coordinator.submit(request) for request in (over, bad)]
    logs = by_hand.run(handles)
    assert by_hand.world.stages["think"].world.opened == 2
    assert [getattr(logs[handle][-1], "reason", None) for handle in handles] == ["finished", "failed"]


def both(request: Request, results: Mapping[str, Any]) -> dict[str, Any]:
    return dict(results)


def test_a_fan_in_waits_for_the_last_of_its_results() -> None:
    config = PipelineConfig(
        "p",
        "pre",
        [
            stage("pre", next=("soon", "late")),
            stage("soon", next=("join",)),
            stage("late", next=("join",), delay_s=0.3),
            stage("join", merge_fn=both, terminal="text"),
        ],
    )
    by_hand = ByHand(config, new_world())
    handle = by_hand.coordinator.submit(Request(id="r", terminals=("text",), body=Script()))
    last = by_hand.run([handle])[handle][-2]
    assert isinstance(last, Event) and set(last.data["inputs"]) == {"soon", "late"}


def test_a_failure_that_comes_late_is_no_second_end() -> None:
    by_hand = ByHand(PipelineConfig("p", "think", [stage("think", "ar", terminal="text")]), new_world())
    handle = by_hand.coordinator.submit(Request(id="r", terminals=("text",), body=Script(fence_s=1.0)))
    while handle.end is None:
        by_hand.as_threads_would()
    by_hand.coordinator.post(Failed(handle.key, "think", "too late", "server_error"))
    log = by_hand.run([handle])[handle]
    assert [event for event in log if isinstance(event, End)] == [End("finished")]
    assert (by_hand.coordinator.stats.finished, by_hand.coordinator.stats.failed) == (1, 0)


class NetworkStub(AsyncStage):
    """Says one thing and waits for ever. ``before``: what happens while it says it."""

    def __init__(self) -> None:
        self.before: Any = None
        self.left = False

    async def run(self, request: Request, inputs: Any, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        try:
            self.before()
            yield Output("word")
            await asyncio.Event().wait()
        finally:
            self.left = True


class NobodyStub:
    """An Exchange that takes everything."""

    def to_stage(self, stage: str, message: ToLane) -> None: ...

    def to_coordinator(self, message: ToCoordinator) -> None: ...


async def test_an_abort_that_comes_while_a_task_speaks_ends_its_waiting() -> None:
    config = PipelineConfig("p", "net", [stage("net", terminal="text")])
    network = NetworkStub()
    lane = AsyncLane("net", NobodyStub(), time.monotonic)
    lane.stations["net"] = Station(config.stages["net"], network, 0, True)
    request = Request(id="r", terminals=("text",))
    network.before = lambda: lane.put(Close(("r", 1), "aborted"))
    running = asyncio.create_task(lane.run())
    await asyncio.sleep(0)
    lane.put(Open(("r", 1), request, config.plan(request), 0.0))
    lane.put(Give(("r", 1), "net", CLIENT, None))
    for _ in range(100):
        await asyncio.sleep(0.01)
        if network.left:
            break
    assert network.left, "nobody told it to stop waiting"
    lane.stop()
    await running
