"""The fault matrix: what was done to which process, when; who failed, how soon it was known, how soon it served again.

    python -m tests.processes.faults [--quick]

A graph of source -> left | right, each in a process of its own; "inside" is a request that goes through the victim,
"beside" one that does not (where there is such a one). Ends with status 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.errors import Busy, PipelineError, StageFailed
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from tests.processes.stages import HERE, ask

STEP_LIMIT_S = 0.6
START_LIMIT_S = 6.0
WAYS = ("SIGKILL", "SIGSEGV", "SIGSTOP", "exit", "hang", "spin")
MOMENTS = ("idle", "just asked", "mid-stream", "last chunk", "passed", "restarting")
"""passed: the victim has done all it can for the request, which is in the next process now."""
VICTIMS = ("source", "left")
FOREVER = 10**9


@dataclass
class Cell:
    """One fault and what came of it; ``broken``: the promises that were not kept."""

    victim: str
    way: str
    moment: str
    inside: str = "-"
    beside: str = "-"
    noticed_ms: float | None = None
    again_ms: float | None = None
    broken: list[str] = field(default_factory=list)

    def row(self) -> str:
        def ms(value: float | None) -> str:
            return "-" if value is None else f"{value:.0f}"

        verdict = "; ".join(self.broken) or "ok"
        return (
            f"{self.victim:7} {self.way:8} {self.moment:11} {self.inside:26} {self.beside:8} "
            f"{ms(self.noticed_ms):>8} {ms(self.again_ms):>8}  {verdict}"
        )


HEAD = f"{'victim':7} {'way':8} {'moment':11} {'the request inside':26} {'beside':8} {'noticed':>8} {'again':>8}  (ms)"


def possible(victim: str, way: str, moment: str) -> bool:
    """A fault out of a step needs a request in that step; only what has a process after it can be passed."""
    if moment == "passed":
        return victim == "source" and way.startswith("SIG")
    return way.startswith("SIG") or moment in ("just asked", "mid-stream")


async def outcome(generation: Generation) -> str:
    try:
        count = 0
        async for event in generation:
            count += not event.last
        return f"whole ({count})"
    except StageFailed as error:
        return f"failed, {'retryable' if error.retryable else 'FINAL'}"
    except PipelineError as error:
        return type(error).__name__


class Bench:
    """A running pipeline, and one fault at a time."""

    def __init__(self) -> None:
        options = ProcessOptions(step_limit_s=STEP_LIMIT_S, start_limit_s=START_LIMIT_S)
        self.backend = ProcessRuntime(PipelineSpec(f"{HERE}:fork", {"source": "source"}), Placement(default=options))
        self.client = Client(self.backend)
        self.backend._crew.pause = lambda seconds: asyncio.sleep(0)  # many faults in a minute: back-off is not the subject
        self.count = 0

    def ask(self, side: str, **scripts: dict[str, Any]) -> Generation:
        self.count += 1
        return self.client.generate(ask(f"r{self.count}", terminal=side, **scripts))

    def process(self, victim: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.health()["processes"][f"{victim}.0"]
        return found

    def send(self, victim: str, way: str) -> None:
        os.kill(int(self.process(victim)["place"].split()[1]), getattr(signal, way))

    async def until(self, victim: str, state: str, limit_s: float = 30.0) -> None:
        async with asyncio.timeout(limit_s):
            while self.process(victim)["state"] != state:  # noqa: ASYNC110 - it is polled as an operator would
                await asyncio.sleep(0.002)

    async def cell(self, victim: str, way: str, moment: str) -> Cell:
        cell = Cell(victim, way, moment)
        beside = None
        if victim != "source":
            beside = self.ask("right", source={"n": 300, "step_s": 0.002})
        inside = self._inside(victim, way, moment)
        other = asyncio.create_task(outcome(beside)) if beside is not None else None
        if inside is not None and moment != "just asked":
            async for event in inside:
                if event.data is not None and event.data.number >= 4:
                    break
        ending = asyncio.create_task(outcome(inside)) if inside is not None else None
        if moment == "restarting":
            self.send(victim, "SIGKILL")
            await self.until(victim, "restarting")
            async with asyncio.timeout(30):
                while "place" not in self.process(victim):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        if way.startswith("SIG"):
            self.send(victim, way)
        began = time.monotonic()
        if moment != "restarting":
            await self.until(victim, "restarting")
            cell.noticed_ms = (time.monotonic() - began) * 1e3
            try:
                self.ask("left", source={"n": 1}).abort()
                cell.broken.append("the door accepted what it cannot serve")
            except Busy as busy:
                if victim not in str(busy):
                    cell.broken.append("refused without a name")
        if ending is not None:
            cell.inside = await asyncio.wait_for(ending, 30)
            if moment == "passed" and not cell.inside.startswith("whole"):
                cell.broken.append("a request that had left it suffered")
            if cell.inside != "failed, retryable" and moment not in ("last chunk", "passed"):
                cell.broken.append("the request inside did not fail as it should")
        await self._again(cell, began)
        if other is not None:
            cell.beside = await asyncio.wait_for(other, 30)
            if cell.beside != "whole (300)":
                cell.broken.append("a request beside it suffered")
        try:
            await asyncio.wait_for(self.backend.coordinator.drained(), 10)
        except TimeoutError:
            cell.broken.append("a request gave no receipt")
        return cell

    def _inside(self, victim: str, way: str, moment: str) -> Generation | None:
        if moment in ("idle", "restarting"):
            return None
        if moment == "passed":
            return self.ask("left", source={"n": 6, "size": 20_000}, left={"step_s": 0.05})
        script: dict[str, Any] = {"step_s": 0.01}
        if not way.startswith("SIG"):
            script |= {"do": way, "at": 1 if moment == "just asked" else 8}
        scripts = {"source": {"n": 4 if moment == "last chunk" else FOREVER, "size": 20_000}}
        scripts[victim] = {**scripts.get(victim, {}), **script}
        return self.ask("left", **scripts)

    async def _again(self, cell: Cell, began: float) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    if await outcome(self.ask("left", source={"n": 3})) == "whole (3)":
                        break
                except Busy:
                    pass
                await asyncio.sleep(0.005)
        cell.again_ms = (time.monotonic() - began) * 1e3


async def matrix(cells: list[tuple[str, str, str]], show: Any = print) -> list[Cell]:
    """Play these faults one after another on one running pipeline."""
    bench = Bench()
    done = []
    show(HEAD)
    async with bench.client:
        for victim, way, moment in cells:
            cell = await bench.cell(victim, way, moment)
            show(cell.row())
            done.append(cell)
        slots = bench.backend._sockets.pool.in_use
        if slots:
            done[-1].broken.append(f"{slots} slots of shared memory were not given back")
    return done


def every() -> list[tuple[str, str, str]]:
    return [(v, w, m) for v in VICTIMS for w in WAYS for m in MOMENTS if possible(v, w, m)]


QUICK = [
    ("left", "SIGKILL", "mid-stream"),
    ("left", "SIGSEGV", "last chunk"),
    ("source", "SIGKILL", "passed"),
    ("source", "SIGKILL", "restarting"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four of them")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    done = asyncio.run(matrix(QUICK if options.quick else every()))
    broken = [cell for cell in done if cell.broken]
    print(f"{len(done)} faults, {len(broken)} with a broken promise")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
