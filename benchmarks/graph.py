"""What the runtime itself costs: python -m benchmarks.graph

Stages that do nothing, so all that is left is mail, scheduling, credits. A hop is a chunk from one stage's step to the next
stage's step. Medians of rounds inside one run.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Chunk, Emit, Inputs, Ready, Request, Stage, Wait
from benchmarks.machine import machine, table

HERE = "benchmarks.graph"
ROUNDS = 7
CHUNKS = 2000


class Task:
    def __init__(self, count: int) -> None:
        self.left = count
        self.chunks: list[float] = []
        self.over = False
        self.next = 0.0


class Source(Stage[Task]):
    """Sends so many chunks, each holding when it left; ``period_s`` apart, so that none waits behind another."""

    def __init__(self, step_s: float = 0.0, period_s: float = 0.0) -> None:
        self.step_s = step_s
        self.period_s = period_s

    def poll(self, task: Task, now: float) -> Ready | Wait:
        return Ready() if now >= task.next else Wait(until=task.next)

    def open(self, request: Request, inputs: Inputs) -> Task:
        return Task(int(request.body.text))

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        if self.step_s:
            time.sleep(self.step_s)
        for task in batch:
            if task.left == 0:
                emit.result(task)
            else:
                task.left -= 1
                task.next = time.monotonic() + self.period_s
                emit.chunk(task, time.perf_counter())


class Relay(Stage[Task]):
    """Passes chunks on; the last of the chain tells how long each took."""

    def __init__(self, last: bool = False) -> None:
        self.last = last

    def open(self, request: Request, inputs: Inputs) -> Task:
        return Task(0)

    def feed(self, task: Task, chunk: Chunk) -> None:
        task.over = task.over or chunk.last
        if not chunk.last:
            task.chunks.append(chunk.data)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        return Ready() if task.chunks or task.over else Wait()

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        for task in batch:
            if task.chunks:
                left = task.chunks.pop(0)
                emit.chunk(task, time.perf_counter() - left if self.last else left)
            else:
                emit.result(task)


def chain(lanes: Sequence[str], *, credits: int, step_s: float = 0.0, period_s: float = 0.0) -> Client:
    """source -> relay -> ... -> last (terminal), one lane name for each."""
    names = [f"s{i}" for i in range(len(lanes))]
    stages = []
    for i, (name, lane) in enumerate(zip(names, lanes, strict=True)):
        last = i == len(names) - 1
        stages.append(
            StageConfig(
                name=name,
                factory=f"{HERE}:{'Relay' if i else 'Source'}",
                factory_args={"last": last} if i else {"step_s": step_s, "period_s": period_s},
                lane=lane,
                stream_to=() if last else (names[i + 1],),
                terminal="out" if last else None,
                credits=credits,
            )
        )
    return Client(LocalRuntime(PipelineConfig("chain", "s0", stages)))


def ask(count: int, name: str) -> GenerateRequest:
    return GenerateRequest(id=name, task="speech", terminals=("out",), text=str(count), listener="none")


async def hops(lanes: Sequence[str], credits: int) -> tuple[float, float]:
    """(median, p99) microseconds from one step to the next stage's step, over the whole chain divided by its hops."""
    medians, tails = [], []
    async with chain(lanes, credits=credits, period_s=0.002) as client:
        for round_ in range(ROUNDS + 1):
            seen = [e.data async for e in client.generate(ask(CHUNKS // 4, f"r{round_}")) if not e.last]
            if round_:  # the first warms up
                per_hop = sorted(s / (len(lanes) - 1) * 1e6 for s in seen)
                medians.append(statistics.median(per_hop))
                tails.append(per_hop[int(len(per_hop) * 0.99)])
    return statistics.median(medians), statistics.median(tails)


async def empty_life() -> tuple[float, float]:
    """Microseconds of a request that makes nothing: submit -> its end read, and -> released."""
    ends, releases = [], []
    async with chain(["a", "a"], credits=8) as client:
        for i in range(300):
            began = time.perf_counter()
            generation = client.generate(ask(1, f"r{i}"))
            async for _ in generation:
                pass
            ends.append((time.perf_counter() - began) * 1e6)
            line = await generation.released()
            releases.append((line["released"] - line["submitted"]) * 1e6)
    return statistics.median(ends), statistics.median(releases)


async def aborts(step_s: float) -> float:
    """Median milliseconds from abort asked to released, beyond one step."""
    beyond = []
    async with chain(["a", "b"], credits=8, step_s=step_s) as client:
        for i in range(30):
            generation = client.generate(ask(10_000, f"r{i}"))
            await asyncio.sleep(step_s * 2.3)
            generation.abort()
            line = await generation.released()
            beyond.append((line["released"] - line["asked"] - step_s) * 1e3)
    return statistics.median(beyond)


async def throughput(lanes: Sequence[str]) -> float:
    """Chunks a second through the chain with enough credits."""
    rates = []
    async with chain(lanes, credits=64) as client:
        for i in range(ROUNDS):
            began = time.perf_counter()
            async for _ in client.generate(ask(CHUNKS, f"r{i}")):
                pass
            rates.append(CHUNKS / (time.perf_counter() - began))
    return statistics.median(rates)


async def main() -> None:
    print(machine())
    rows: list[list[Any]] = []
    same, same99 = await hops(["a"] * 4, credits=8)
    rows.append(["hop within a lane (us)", f"{same:.0f}", f"p99 {same99:.0f}", "<= 30"])
    between, between99 = await hops(["a", "b", "c", "d"], credits=8)
    rows.append(["hop between lanes (us)", f"{between:.0f}", f"p99 {between99:.0f}", "<= 60"])
    end, released = await empty_life()
    rows.append(["an empty request, to its end (us)", f"{end:.0f}", f"released {released:.0f}", ""])
    rows.append(["chunks/s, 4 stages, one lane", f"{await throughput(['a'] * 4):.0f}", "", ""])
    rows.append(["chunks/s, 4 stages, 4 lanes", f"{await throughput(['a', 'b', 'c', 'd']):.0f}", "", ""])
    for step_ms in (5, 30):
        beyond = await aborts(step_ms / 1000)
        rows.append([f"abort -> released beyond one {step_ms} ms step (ms)", f"{beyond:.2f}", "", "<= 2"])
    print(table(["what", "median", "", "reach"], rows))


if __name__ == "__main__":
    asyncio.run(main())
