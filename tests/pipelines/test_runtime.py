"""The real runtime: threads, an asyncio door, async twins."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from antiphon.pipelines.client import Client, Event, Generation
from antiphon.pipelines.errors import Aborted, ConfigError, Refused, StageFailed
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.local_lanes import LocalLanes
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import AsyncStage, Chunk, Emit, Inputs, Output, Ready, Request, Stage, Wait
from tests.hearing.waiting import until

HERE = "tests.pipelines.test_runtime"


class Counting:
    def __init__(self, request: Request, count: int) -> None:
        self.request = request
        self.left = count
        self.chunks: list[Any] = []
        self.over = False


class Counter(Stage[Counting]):
    """Counts down from the number in the request's text, a number a step."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s

    def open(self, request: Request, inputs: Inputs) -> Counting:
        if request.body.text == "refuse":
            raise Refused("cannot count that", param="text")
        return Counting(request, int(request.body.text))

    def step(self, batch: Sequence[Counting], emit: Emit) -> None:
        time.sleep(self.step_s)
        for task in batch:
            if task.left == 0:
                emit.result(task, "counted")
            elif task.left == 13:
                raise ValueError("a secret of the house")
            else:
                emit.chunk(task, task.left)
                task.left -= 1


class Doubler(Stage[Counting]):
    def open(self, request: Request, inputs: Inputs) -> Counting:
        return Counting(request, 0)

    def feed(self, task: Counting, chunk: Chunk) -> None:
        task.over = task.over or chunk.last
        if not chunk.last:
            task.chunks.append(chunk.data)

    def poll(self, task: Counting, now: float) -> Ready | Wait:
        return Ready() if task.chunks or task.over else Wait()

    def step(self, batch: Sequence[Counting], emit: Emit) -> None:
        for task in batch:
            if task.chunks:
                emit.chunk(task, 2 * task.chunks.pop(0))
            else:
                emit.result(task)


class AsyncDoubler(AsyncStage):
    """The async twin."""

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        async for chunk in chunks:
            yield Output(2 * chunk.data)
        yield Output(result=True)


class SlowEngine(AsyncStage):
    """Works without end, and confirms an abort only when the test lets it."""

    works, confirms = threading.Event(), threading.Event()

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        try:
            self.works.set()
            await asyncio.Event().wait()
            yield Output(result=True)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.confirms.wait, 60)
            raise


class Broken(Stage[Any]):
    def warm_up(self) -> None:
        raise ConfigError("weights are not here; run `antiphon models pull`")


class BrokenLate(Broken):
    """Another one."""


def two(second: StageConfig, *, step_s: float = 0.0, credits: int = 8, lane: str = "first") -> Client:
    first = StageConfig(
        name="count",
        factory=f"{HERE}:Counter",
        factory_args={"step_s": step_s},
        lane=lane,
        stream_to=("double",),
        credits=credits,
    )
    return Client(LocalRuntime(PipelineConfig("two", "count", [first, second]), max_requests=32))


def double(factory: str = "Doubler", lane: str = "second", **args: Any) -> StageConfig:
    return StageConfig(name="double", factory=f"{HERE}:{factory}", factory_args=args, lane=lane, terminal="out")


VARIANTS = {
    "same lane": lambda: two(double(lane="first")),
    "two lanes": lambda: two(double()),
    "async twin": lambda: two(double("AsyncDoubler")),
    "one credit": lambda: two(double(), credits=1),
    "async twin, one credit": lambda: two(double("AsyncDoubler"), credits=1),
}


def ask(text: str, name: str = "r") -> GenerateRequest:
    return GenerateRequest(id=name, task="speech", terminals=("out",), text=text)


async def read(generation: Generation) -> list[Any]:
    return [event.data async for event in generation if not event.last]


@pytest.mark.parametrize("variant", VARIANTS)
async def test_every_chunk_comes_in_order_and_the_end_once(variant: str) -> None:
    async with VARIANTS[variant]() as client:
        generations = [client.generate(ask(str(n), f"r{n}")) for n in (0, 1, 5, 12, 30)]
        results = await asyncio.gather(*(read(g) for g in generations[:4]), return_exceptions=True)
        assert results == [[], [2], [10, 8, 6, 4, 2], [2 * n for n in range(12, 0, -1)]]
        with pytest.raises(StageFailed) as failed:
            await read(generations[4])  # it reaches 13
        assert "secret" not in str(failed.value)
        for generation in generations:
            await generation.released()
        assert client.stats()["stages"]["count"]["requests"] >= 5


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_refusal_out_of_a_stage_keeps_its_name(variant: str) -> None:
    async with VARIANTS[variant]() as client:
        with pytest.raises(Refused, match="cannot count that") as refused:
            await read(client.generate(ask("refuse")))
        assert refused.value.param == "text"


@pytest.mark.parametrize("variant", VARIANTS)
async def test_an_abort_ends_at_once_and_is_released(variant: str) -> None:
    async with VARIANTS[variant]() as client:
        generation = client.generate(ask("1000000"))
        seen: list[Event] = []
        with pytest.raises(Aborted, match="client"):
            async for event in generation:
                seen.append(event)
                if len(seen) == 3:
                    generation.abort()
                    generation.abort()
        line = await asyncio.wait_for(generation.released(), 5)
        assert line["asked"] <= line["broadcast"] <= line["released"]
        assert len(seen) == 3, "nothing of a request follows its end"


async def test_released_waits_for_the_async_engines_own_confirmation() -> None:
    async with two(double("SlowEngine")) as client:
        generation = client.generate(ask("5"))
        await asyncio.to_thread(SlowEngine.works.wait, 60)
        generation.abort()
        released = asyncio.ensure_future(generation.released())
        await until(lambda: "closed:second" in generation.timeline)
        assert "released:second" not in generation.timeline and not released.done()
        confirmed = time.monotonic()
        SlowEngine.confirms.set()
        line = await asyncio.wait_for(released, 60)
        assert line["closed:second"] <= confirmed <= line["released:second"]


async def test_a_slow_reader_costs_a_bounded_amount() -> None:
    async with two(double(), credits=4) as client:
        generation = client.generate(ask("100000"))
        await asyncio.sleep(0.2)
        assert len(generation._handle.events) <= 8
        generation.abort()
        await generation.released()


async def test_a_failed_start_is_named_and_rolled_back() -> None:
    before = threading.active_count()
    client = two(double("Broken"))
    with pytest.raises(ConfigError, match="antiphon models pull"):
        await client.start()
    assert threading.active_count() <= before + 1  # the loop's own executor thread may stay


async def test_the_error_of_a_second_lane_that_does_not_start_is_nobodys_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends while the first one's error rolls the start back, and asyncio complains of what nobody has looked at."""
    late, told = threading.Event(), list[dict[str, Any]]()
    join = LocalLanes._join

    def joined(lanes: LocalLanes) -> None:
        late.set()
        join(lanes)

    def fails_late(stage: Broken) -> None:
        late.wait(60)
        raise ConfigError("this one is broken too")

    async def start() -> None:
        stages = [StageConfig(name=n, factory=f"{HERE}:{n}", lane=n, terminal=n) for n in ("Broken", "BrokenLate")]
        entry = StageConfig(name="count", factory=f"{HERE}:Counter", lane="Broken", next=("Broken", "BrokenLate"))
        with pytest.raises(ConfigError, match="antiphon models pull"):
            await Client(LocalRuntime(PipelineConfig("three", "count", [entry, *stages]))).start()

    monkeypatch.setattr(LocalLanes, "_join", joined)
    monkeypatch.setattr(BrokenLate, "warm_up", fails_late)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    await start()
    gc.collect()
    assert not told


async def test_mixing_stepped_and_async_stages_on_a_lane_is_refused() -> None:
    with pytest.raises(ConfigError, match="mixes stepped and async"):
        await two(double("AsyncDoubler", lane="first")).start()


async def test_stopping_aborts_what_runs() -> None:
    client = two(double())
    await client.start()
    generation = client.generate(ask("1000000"))
    await client.stop()
    with pytest.raises(Aborted, match="shutdown"):
        await read(generation)


class Echo(Stage[Counting]):
    """The client is an upstream: says back what it is fed."""

    def open(self, request: Request, inputs: Inputs) -> Counting:
        return Counting(request, 0)

    def feed(self, task: Counting, chunk: Chunk) -> None:
        assert chunk.source == "client"
        task.over = task.over or chunk.last
        if not chunk.last:
            task.chunks.append(chunk.data)

    def poll(self, task: Counting, now: float) -> Ready | Wait:
        return Ready() if task.chunks or task.over else Wait()

    def step(self, batch: Sequence[Counting], emit: Emit) -> None:
        for task in batch:
            if task.chunks:
                emit.chunk(task, task.chunks.pop(0))
            else:
                emit.result(task)


async def test_the_client_is_an_upstream() -> None:
    config = PipelineConfig("echo", "echo", [StageConfig(name="echo", factory=f"{HERE}:Echo", terminal="out")])
    async with Client(LocalRuntime(config)) as client:
        generation = client.generate(ask(""), streams_input=True)

        async def speak() -> None:
            for n in range(50):
                await generation.feed(n)
            generation.finish()

        _, heard = await asyncio.gather(speak(), read(generation))
        assert heard == list(range(50))


async def test_many_at_once_each_get_their_own() -> None:
    async with two(double()) as client:
        results = await asyncio.gather(*(read(client.generate(ask(str(n % 12), f"r{n}"))) for n in range(32)))
        assert results == [[2 * k for k in range(n % 12, 0, -1)] for n in range(32)]
        assert client.running == 0
