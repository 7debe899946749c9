"""Random kills, aborts and slow readers: every request has exactly one end, the right one, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.errors import Aborted, Busy, PipelineError, StageFailed
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from tests.processes import faults
from tests.processes.stages import HERE, ask

PROCESSES = ("source.0", "left.0", "right.0")
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Asked:
    """One request: where it goes, how much it makes, when it is asked (ms), how slowly it is read, when it is aborted."""

    side: str
    n: int
    size: int
    at_ms: int
    read_ms: int
    abort_after: int | None


@dataclass(frozen=True)
class Killed:
    process: str
    at_ms: int
    sign: signal.Signals


requests = st.builds(
    Asked,
    side=st.sampled_from(("left", "right")),
    n=st.sampled_from((0, 1, 7, 60)),
    size=st.sampled_from((0, 500, 50_000)),
    at_ms=st.integers(0, 120),
    read_ms=st.sampled_from((0, 0, 1, 20)),
    abort_after=st.none() | st.integers(0, 40),
)
kills = st.builds(
    Killed,
    process=st.sampled_from(PROCESSES),
    at_ms=st.integers(0, 150),
    sign=st.sampled_from((signal.SIGKILL, signal.SIGSEGV)),
)


class Rig:
    """One pipeline that outlives all examples: it must."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.backend = ProcessRuntime(PipelineSpec(f"{HERE}:fork", {"source": "source"}))
        self.backend._crew.pause = lambda seconds: asyncio.sleep(0)  # many deaths in a minute: back-off is not the subject
        self.client = Client(self.backend)
        self.numbers = iter(range(1 << 30))
        runner.run(self.client.start())

    async def whole(self) -> None:
        """Wait until every process serves."""
        async with asyncio.timeout(PATIENCE_S):
            while set(self.client.health()["lanes"].values()) != {"ready"}:  # noqa: ASYNC110 - as an operator would
                await asyncio.sleep(0.01)

    async def play(self, asked: list[Asked], killed: list[Killed]) -> None:
        await self.whole()
        dead = {k.process.partition(".")[0] for k in killed}
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for kill in killed:
                group.create_task(self._kill(kill))
            for one in asked:
                group.create_task(self._ask(one, dead))
        async with asyncio.timeout(PATIENCE_S):
            await self.backend.coordinator.drained()
        await self.whole()
        assert not self.backend.coordinator.live
        async with asyncio.timeout(PATIENCE_S):
            while self.backend._sockets.pool.in_use:  # noqa: ASYNC110 - slots are given back in another process
                await asyncio.sleep(0.005)

    async def _kill(self, kill: Killed) -> None:
        await asyncio.sleep(kill.at_ms / 1000)
        process = self.client.health()["processes"][kill.process]
        if "place" not in process:
            return
        try:
            os.kill(int(process["place"].split()[1]), kill.sign)
        except ProcessLookupError:
            return  # it was dead already
        while self.client.health()["processes"][kill.process]["restarts"] == process["restarts"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # a death takes a moment, and belongs to this example

    async def _ask(self, one: Asked, dead: set[str]) -> None:
        await asyncio.sleep(one.at_ms / 1000)
        request = ask(f"r{next(self.numbers)}", terminal=one.side, source={"n": one.n, "size": one.size})
        try:
            generation = self.client.generate(request)
        except Busy as busy:
            assert dead & {"source", one.side}, busy
            return
        seen, ends = await self._read(generation, one)
        assert len(ends) == 1, "exactly one end"
        assert seen == [2 * n for n in range(len(seen))], "in order, nothing doubled, nothing left out"
        match ends[0]:
            case None:
                assert len(seen) == one.n, "a whole answer"
            case Aborted():
                assert one.abort_after is not None
            case StageFailed(retryable=retryable, stage=stage):
                assert retryable and stage in dead & {"source", one.side}, "only what was inside"
            case other:
                raise AssertionError(other)
        assert [e async for e in _rest(generation)] == [], "nothing follows the end"
        await generation.released()

    async def _read(self, generation: Generation, one: Asked) -> tuple[list[int], list[PipelineError | None]]:
        seen: list[int] = []
        ends: list[PipelineError | None] = []
        try:
            if one.abort_after == 0:
                generation.abort()
            async for event in generation:
                if event.last:
                    continue
                seen.append(event.data.number)
                if event.data.pcm is not None:
                    assert event.data.pcm.size == one.size and float(event.data.pcm[-1]) == event.data.number
                if len(seen) == one.abort_after:
                    generation.abort()
                if one.read_ms:
                    await asyncio.sleep(one.read_ms / 1000)
            ends.append(None)
        except PipelineError as error:
            ends.append(error)
        return seen, ends


async def _rest(generation: Generation) -> Any:
    """What could still be read without waiting."""
    while (event := generation._handle.read()) is not None:
        yield event


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with asyncio.Runner() as runner:
        found = Rig(runner)
        yield found
        runner.run(found.client.stop())


QUIET: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],  # a race does not shrink
}


@settings(max_examples=12, derandomize=True, **QUIET)
@given(st.lists(requests, min_size=1, max_size=8), st.lists(kills, max_size=2))
def test_one_end_each_and_nothing_left(rig: Rig, asked: list[Asked], killed: list[Killed]) -> None:
    rig.runner.run(rig.play(asked, killed))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=300, **QUIET)
@given(st.lists(requests, min_size=1, max_size=20), st.lists(kills, max_size=4))
def test_one_end_each_for_long(rig: Rig, asked: list[Asked], killed: list[Killed]) -> None:
    rig.runner.run(rig.play(asked, killed))


async def test_the_fault_matrix_holds() -> None:
    """Four cells of it; the whole is ``python -m tests.processes.faults``."""
    for cell in await faults.matrix(faults.QUICK, show=lambda row: None):
        assert not cell.broken, cell.row()
