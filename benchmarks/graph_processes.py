"""What a hop between processes costs: latency, throughput, CPU; an abort; a death. Floors of the same run beside them.

    python -m benchmarks.graph_processes [--quick] [--json FILE]

The floors: the same bytes through a bare ZeroMQ socket pair between two processes, and one memcpy of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import PipelineError
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Chunk, Emit, Inputs, Ready, Request, Stage, Wait
from benchmarks.machine import machine, table

HERE = "benchmarks.graph_processes"
SIZES = {"0 B": 0, "1 KiB": 1 << 10, "100 KiB": 100 << 10, "10 MiB": 10 << 20}


class Throwing:
    def __init__(self, count: int, data: Any) -> None:
        self.left = count
        self.data = data


class Pitcher(Stage[Throwing]):
    """Throws ``count`` pieces of ``size`` bytes, each with the time it left: the request's text is "count size"."""

    def __init__(self) -> None:
        self.balls: dict[int, Any] = {0: None}

    def open(self, request: Request, inputs: Inputs) -> Throwing:
        count, size = map(int, request.body.text.split())
        if size not in self.balls:  # made once: its pages are no cost of a hop
            self.balls[size] = np.ones(size, np.uint8)
        return Throwing(count, self.balls[size])

    def step(self, batch: Sequence[Throwing], emit: Emit) -> None:
        for task in batch:
            if task.left == 0:
                emit.result(task)
            else:
                task.left -= 1
                emit.chunk(task, (time.monotonic(), task.data))


class Catching:
    def __init__(self) -> None:
        self.took: list[float] = []
        self.first = self.last = 0.0
        self.over = False


class Catcher(Stage[Catching]):
    """Says how long each piece took from the pitcher's step to its own feed, and the time from the first to the last."""

    def open(self, request: Request, inputs: Inputs) -> Catching:
        return Catching()

    def feed(self, task: Catching, chunk: Chunk) -> None:
        now = time.monotonic()
        if chunk.last:
            task.over = True
            return
        task.took.append(now - chunk.data[0])
        task.first = task.first or chunk.data[0]
        task.last = now

    def poll(self, task: Catching, now: float) -> Ready | Wait:
        return Ready() if task.over else Wait()

    def step(self, batch: Sequence[Catching], emit: Emit) -> None:
        for task in batch:
            emit.result(task, {"took": task.took, "span": task.last - task.first})


def build(credits: int = 1, apart: bool = True, forever: bool = False) -> PipelineConfig:
    target: dict[str, Any] = {"terminal": "out"} if forever else {"stream_to": ("catch",)}
    stages = [
        StageConfig(name="pitch", factory=f"{HERE}:Pitcher", process="pitch", lane="pitch", credits=credits, **target),
    ]
    if not forever:
        process = "catch" if apart else "pitch"
        stages.append(StageConfig(name="catch", factory=f"{HERE}:Catcher", process=process, lane="catch", terminal="out"))
    return PipelineConfig("hop", "pitch", stages)


def spec(**args: Any) -> PipelineSpec:
    return PipelineSpec(f"{HERE}:build", args)


async def throw(client: Client, name: str, count: int, size: int) -> dict[str, Any]:
    generation = client.generate(GenerateRequest(id=name, task="speech", terminals=("out",), text=f"{count} {size}"))
    result: dict[str, Any] = {}
    async for event in generation:
        if event.last:
            result = event.data
    await generation.released()
    return result


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def cpu(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def pids(client: Client) -> list[int]:
    return [int(p["place"].split()[1]) for p in client.health()["processes"].values() if "place" in p]


# -- floors
def zmq_floor(size: int, rounds: int) -> list[float]:
    """One way through bare sockets: half of a round trip with an echo that sends as much back."""
    with tempfile.TemporaryDirectory() as folder:
        there, back = f"ipc://{folder}/there", f"ipc://{folder}/back"
        code = (
            "import sys, zmq\nc = zmq.Context(); a = c.socket(zmq.PULL); a.connect(sys.argv[1])\n"
            "b = c.socket(zmq.PUSH); b.connect(sys.argv[2])\nwhile True: b.send(a.recv())"
        )
        context: zmq.Context[Any] = zmq.Context()
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.bind(there)
        pull.bind(back)
        echo = subprocess.Popen([sys.executable, "-c", code, there, back])
        data, took = bytes(max(size, 64)), []
        for round_ in range(rounds + 20):
            began = time.monotonic()
            push.send(data)
            pull.recv()
            if round_ >= 20:
                took.append((time.monotonic() - began) / 2)
        echo.kill()
        echo.wait()
        context.destroy(0)
    return took


def memcpy_floor(size: int) -> float:
    if not size:
        return 0.0
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    took = []
    for _ in range(30):
        began = time.monotonic()
        target[:] = source
        took.append(time.monotonic() - began)
    return statistics.median(took)


# -- what is measured
async def hops(quick: bool) -> list[dict[str, Any]]:
    rows = []
    for label, size in SIZES.items():
        count = (40 if size > 1 << 20 else 300) // (3 if quick else 1)
        floor = zmq_floor(size, count)
        row: dict[str, Any] = {"size": label, "zmq_us": statistics.median(floor) * 1e6, "memcpy_us": memcpy_floor(size) * 1e6}
        async with Client(ProcessRuntime(spec(credits=1))) as client:
            await throw(client, "warm", 10, size)
            took = [t for n in range(2) for t in (await throw(client, f"r{n}", count, size))["took"]]
            row |= {"hop_p50_us": quantile(took, 0.5) * 1e6, "hop_p99_us": quantile(took, 0.99) * 1e6}
            row |= await requests(client, size, (100 if size > 1 << 20 else 1000) // (3 if quick else 1))
        async with Client(ProcessRuntime(spec(credits=1, apart=False))) as client:
            await throw(client, "warm", 10, size)
            took = (await throw(client, "r", count, size))["took"]
            row["lane_p50_us"] = quantile(took, 0.5) * 1e6
            row["together_cpu_ms"] = (await requests(client, size, 300 if quick else 1000))["cpu_ms"]
        async with Client(ProcessRuntime(spec(credits=4))) as client:
            await throw(client, "warm", 10, size)
            runs = [await throw(client, f"r{n}", count, size) for n in range(3)]
            per = statistics.median(r["span"] for r in runs) / count
            row |= {"pieces_s": 1 / per, "GB_s": size / per / 1e9}
        rows.append(row)
    return rows


async def requests(client: Client, size: int, count: int) -> dict[str, float]:
    """CPU of all processes for one two-stage request (one piece, two Results), the stages apart; its life until released."""
    watched = [os.getpid(), *pids(client)]
    before = cpu(watched)
    took = []
    for n in range(count):
        at = time.monotonic()
        await throw(client, f"q{n}", 1, size)
        took.append(time.monotonic() - at)
    return {"cpu_ms": (cpu(watched) - before) / count * 1e3, "life_p50_us": quantile(took, 0.5) * 1e6}


async def aborts(quick: bool) -> dict[str, float]:
    """From the client's abort to the last receipt, in mid-stream."""
    took = []
    async with Client(ProcessRuntime(spec(forever=True, credits=8))) as client:
        for n in range(20 if quick else 100):
            generation = client.generate(GenerateRequest(id=f"r{n}", task="speech", terminals=("out",), text="1000000 0"))
            seen = 0
            try:
                async for _ in generation:
                    seen += 1
                    if seen == 20:
                        generation.abort()
            except PipelineError:
                pass
            line = await generation.released()
            took.append(line["released"] - line["asked"])
    return {"p50_us": quantile(took, 0.5) * 1e6, "p99_us": quantile(took, 0.99) * 1e6}


async def deaths(quick: bool) -> dict[str, float]:
    """SIGKILL in mid-answer: until the client knows, until the stage serves again, and what a start alone takes."""
    noticed, served, started = [], [], []
    for _ in range(2 if quick else 5):
        client = Client(ProcessRuntime(spec(forever=True)))
        began = time.monotonic()
        await client.start()
        started.append(time.monotonic() - began)
        generation = client.generate(GenerateRequest(id="r", task="speech", terminals=("out",), text="100000000 0"))
        killed = 0.0
        try:
            async for _ in generation:
                if not killed:
                    killed = time.monotonic()
                    os.kill(pids(client)[0], signal.SIGKILL)
        except PipelineError:
            noticed.append(time.monotonic() - killed)
        while True:
            try:
                await throw(client, "again", 1, 0)
                break
            except PipelineError:
                await asyncio.sleep(0.005)
        served.append(time.monotonic() - killed)
        await client.stop()
    return {
        "noticed_ms": statistics.median(noticed) * 1e3,
        "serving_again_ms": statistics.median(served) * 1e3,
        "start_alone_ms": statistics.median(started) * 1e3,
    }


COLUMNS = {
    "bare ZeroMQ us": ("zmq_us", 0),
    "memcpy us": ("memcpy_us", 0),
    "lane to lane us": ("lane_p50_us", 0),
    "hop p50 us": ("hop_p50_us", 0),
    "hop p99 us": ("hop_p99_us", 0),
    "pieces/s": ("pieces_s", 0),
    "GB/s": ("GB_s", 2),
    "CPU ms a request": ("cpu_ms", 2),
    "stages together": ("together_cpu_ms", 2),
    "its life p50 us": ("life_p50_us", 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(machine())
    rows = asyncio.run(hops(options.quick))
    print(table(["piece", *COLUMNS], [[r["size"], *(f"{r[k]:.{digits}f}" for k, digits in COLUMNS.values())] for r in rows]))
    figures: dict[str, Any] = {"machine": machine(), "hops": rows}
    for name, measure in (("abort to released", aborts), ("a stage's process killed", deaths)):
        figures[name] = asyncio.run(measure(options.quick))
        print(f"{name}: " + ", ".join(f"{key} {value:.0f}" for key, value in figures[name].items()))
    print(machine())
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
