"""The CPU voice: python -m benchmarks.voice

Each stage's time, first token, first audio, real-time factor, memory and start-up for 1, 2 and 4 requests at once, and the
graph beside the same stages called in a bare loop (one thread, no runtime). Rounds are interleaved; medians are shown.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.cli.demo import QUESTION
from antiphon.codecs.media import decode
from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.lane_thread import build_stage
from antiphon.pipelines.local.pipeline import build
from antiphon.pipelines.local.prepared import merge_transcripts
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest, Message
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Chunk, Ready, Request, Stage
from benchmarks.machine import machine, table

ROUNDS = 9


def question() -> NDArray[np.float32]:
    return decode(QUESTION.read_bytes(), 16_000)


def spoken(name: str, speech: NDArray[np.float32]) -> GenerateRequest:
    """A spoken question; its key is new each time, so that it is read each time."""
    part = AudioPart(speech.tobytes(), PCM_F32_16K, key=name)
    return GenerateRequest(
        id=name,
        task="chat",
        terminals=("text", "audio", "transcript"),
        messages=(Message("user", (part,)),),
        conversation=name,
        listener="confirmed",
    )


# -- the bare loop


@dataclass
class Bare:
    """The same stages without the runtime: one after another, each run to its end, chunks handed over as lists."""

    config: PipelineConfig
    stages: dict[str, Stage[Any]] = field(default_factory=dict)
    first_audio: float = 0.0

    def start(self) -> None:
        for name, stage in self.config.stages.items():
            built = build_stage(stage)
            assert isinstance(built, Stage)
            built.warm_up()
            self.stages[name] = built

    def answer(self, body: GenerateRequest) -> None:
        request = Request(id=body.id, terminals=body.terminals, body=body, conversation=body.conversation)
        _, prepared = self._run("preprocessing", request, body, [])
        _, heard = self._run("transcriber", request, prepared, [])
        merged = merge_transcripts(request, {"preprocessing": prepared, "transcriber": heard})
        text, _ = self._run("thinker", request, merged, [])
        self._run("decode", request, None, text)
        segments, _ = self._run("segmenter", request, None, text)
        frames, _ = self._run("talker", request, None, segments)
        self._run("code2wav", request, None, frames)

    def _run(self, name: str, request: Request, inputs: Any, chunks: list[Any]) -> tuple[list[Any], Any]:
        stage = self.stages[name]
        task = stage.open(request, inputs)
        waiting = [Chunk("", i, c) for i, c in enumerate(chunks)] + [Chunk("", len(chunks), None, last=True)]
        out = Collected()
        while not out.ended:
            verdict = stage.poll(task, time.monotonic())
            if isinstance(verdict, Ready):
                stage.step([task], out)
            elif verdict.hungry and waiting:
                stage.feed(task, waiting.pop(0))
            else:
                time.sleep(0.001)
        stage.close(task, "finished")
        return out.chunks, out.data


class Collected:
    """An Emit that keeps everything."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.data: Any = None
        self.ended = False

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self.chunks.append(data)

    def result(self, task: Any, data: Any = None) -> None:
        self.data, self.ended = data, True

    def failure(self, task: Any, error: Exception) -> None:
        raise error


# -- the graph


@dataclass
class Run:
    first_token: float
    first_audio: float
    total: float
    audio_s: float
    timeline: dict[str, float]


async def ask(client: Client, body: GenerateRequest) -> Run:
    samples = 0
    generation = client.generate(body)
    generation.tell(due_in_ms=0.0, heard_ms=None)
    async for event in generation:
        if isinstance(event.data, AudioDelta):
            samples += event.data.pcm.size
    line = await generation.released()
    zero = line["submitted"]
    return Run(line["first:text"] - zero, line["first:audio"] - zero, line["ended"] - zero, samples / AUDIO_RATE, dict(line))


def ms(values: list[float]) -> str:
    return f"{statistics.median(values) * 1000:.0f}"


async def main() -> None:
    print(machine())
    speech = question()
    began = time.monotonic()
    bare = Bare(build())
    bare.start()
    bare_start = time.monotonic() - began
    began = time.monotonic()
    async with Client(LocalRuntime(build())) as client:
        start = time.monotonic() - began
        runs: dict[int, list[Run]] = {1: [], 2: [], 4: []}
        cpu: dict[str, list[float]] = {"graph": [], "bare": []}
        wall: dict[str, list[float]] = {"graph": [], "bare": []}
        for round_ in range(ROUNDS + 1):
            for at_once, kept in runs.items():
                names = [f"r{round_}-{at_once}-{i}" for i in range(at_once)]
                before, clock = time.process_time(), time.monotonic()
                done = await asyncio.gather(*(ask(client, spoken(name, speech)) for name in names))
                if round_ and at_once == 1:
                    cpu["graph"].append(time.process_time() - before)
                    wall["graph"].append(time.monotonic() - clock)
                if round_:
                    kept.extend(done)
            before, clock = time.process_time(), time.monotonic()
            await asyncio.to_thread(bare.answer, spoken(f"b{round_}", speech))
            if round_:
                cpu["bare"].append(time.process_time() - before)
                wall["bare"].append(time.monotonic() - clock)
        told = client.stats()["stages"]
    rows = [
        [n, ms([r.first_token for r in kept]), ms([r.first_audio for r in kept]), p95([r.first_audio for r in kept]),
         ms([r.total for r in kept]), f"{statistics.median(r.total / r.audio_s for r in kept):.2f}"]
        for n, kept in runs.items()
    ]  # fmt: skip
    print("\na spoken question of 2.5 s, answered aloud (ms after the request)")
    print(table(["at once", "first token", "first audio", "p95", "all", "RTF"], rows))
    stages = [[n, s["requests"], f"{s['step_s'] / s['requests'] * 1000:.1f}", f"{s['queued_s'] / s['requests'] * 1000:.1f}"]
              for n, s in told.items()]  # fmt: skip
    print(table(["stage", "requests", "step ms a request", "queued ms"], stages))
    over: Callable[[dict[str, list[float]]], float] = lambda d: (  # noqa: E731
        statistics.median(d["graph"]) / statistics.median(d["bare"]) - 1
    )
    print(
        table(
            ["one request, start to end", "graph", "bare loop", "graph costs more by", "reach"],
            [
                ["CPU ms", ms(cpu["graph"]), ms(cpu["bare"]), f"{over(cpu):+.1%}", "<= 5 %"],
                ["wall ms", ms(wall["graph"]), ms(wall["bare"]), f"{over(wall):+.1%}", "(overlaps)"],
            ],
        )
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"start-up: {start:.1f} s in the graph ({bare_start:.1f} s bare); peak memory of both together: {peak:.0f} MB")


def p95(values: list[float]) -> str:
    return f"{sorted(values)[int(len(values) * 0.95)] * 1000:.0f}"


if __name__ == "__main__":
    asyncio.run(main())
