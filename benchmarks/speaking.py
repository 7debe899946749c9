"""The speaking half of the CPU voice alone: segmenter -> talker -> code2wav. `python -m benchmarks.speaking` prints a table.

``measure()`` is called by the voice benchmark too. Nothing else must run beside it; one thread, medians.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.outputs import AUDIO_RATE
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Chunk, Ready, Request, Stage

TEXTS = {
    "two words": "Hello there.",
    "one sentence": "The quick brown fox jumps over the lazy dog.",
    "an answer": "Sure, I can help with that. The capital of France is Paris, which lies on the Seine. It costs 3.14 euros.",
}


def resident_mb() -> float:
    """Memory of this process, resident, in MB (Linux; elsewhere 0)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0.0
    return pages * 4096 / 1e6


def stages() -> list[Stage[Any]]:
    """Loaded and warm."""
    from antiphon.pipelines.local.code2wav import Code2Wav
    from antiphon.pipelines.local.segmenter import Segmenter
    from antiphon.pipelines.local.talker import Talker

    weights.ensure("hibari-heart")
    chain: list[Stage[Any]] = [Segmenter(), Talker(), Code2Wav()]
    for stage in chain:
        stage.warm_up()
    return chain


def speech_graph() -> PipelineConfig:
    """The three stages on one lane, as the pipeline of the CPU voice has them."""
    here = "antiphon.pipelines.local"
    return PipelineConfig(
        "speaking",
        "segmenter",
        [
            StageConfig(name="segmenter", factory=f"{here}.segmenter:Segmenter", stream_to=("talker",), credits=4, max_open=32),
            StageConfig(
                name="talker", factory=f"{here}.talker:Talker", stream_to=("code2wav",), credits=2, max_batch=1, max_open=32
            ),
            StageConfig(name="code2wav", factory=f"{here}.code2wav:Code2Wav", terminal="audio", max_batch=4, max_open=32),
        ],
    )


class _Once:
    """An Emit for one task at a time, and the time of its first chunk."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.first = 0.0
        self.ended = False

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self.first = self.first or time.perf_counter()
        self.chunks.append(data)

    def result(self, task: Any, data: Any = None) -> None:
        self.ended = True

    def failure(self, task: Any, error: Exception) -> None:
        raise error


def bare(chain: list[Stage[Any]], text: str) -> tuple[float, float, float, list[float]]:
    """One text in a bare loop, no graph: (first audio, whole) in ms, seconds of audio, ms of every step."""
    body = GenerateRequest(id="bare", task="speech", terminals=("audio",), text=text)
    request = Request(id="bare", terminals=("audio",), body=body)
    began = time.perf_counter()
    tasks = [stage.open(request, None) for stage in chain]
    said = [_Once() for _ in chain]
    steps: list[float] = []
    taken = [0] * len(chain)
    while not said[-1].ended:
        for depth in reversed(range(len(chain))):  # the one nearest the listener first
            if said[depth].ended:
                continue
            state = chain[depth].poll(tasks[depth], time.monotonic())
            above = said[depth - 1] if depth else None
            if above and state.hungry and (taken[depth] < len(above.chunks) or above.ended):
                fresh = taken[depth] < len(above.chunks)
                data = above.chunks[taken[depth]] if fresh else None
                chain[depth].feed(tasks[depth], Chunk("up", taken[depth], data, last=not fresh))
                taken[depth] += 1
                state = chain[depth].poll(tasks[depth], time.monotonic())
            if isinstance(state, Ready):
                at = time.perf_counter()
                chain[depth].step([tasks[depth]], said[depth])
                steps.append((time.perf_counter() - at) * 1000)
                break
    ended = time.perf_counter()
    seconds = sum(len(chunk.pcm) for chunk in said[-1].chunks) / AUDIO_RATE
    return (said[-1].first - began) * 1000, (ended - began) * 1000, seconds, steps


async def graph(client: Client, text: str, count: int = 1) -> tuple[list[float], float, float]:
    """``count`` equal requests at once through the graph: first audio of each in ms, the whole in ms, seconds of audio."""

    async def one(number: int) -> tuple[float, float]:
        began = time.perf_counter()
        body = GenerateRequest(id=f"g{number}-{began}", task="speech", terminals=("audio",), text=text, listener="none")
        first, samples = 0.0, 0
        async for event in client.generate(body):
            if not event.last:
                first = first or (time.perf_counter() - began) * 1000
                samples += len(event.data.pcm)
        return first, samples / AUDIO_RATE

    began = time.perf_counter()
    results = await asyncio.gather(*(one(number) for number in range(count)))
    return [first for first, _ in results], (time.perf_counter() - began) * 1000, sum(seconds for _, seconds in results)


def measure(repeats: int = 9) -> dict[str, dict[str, float]]:
    """Text -> first audio, whole, RTF and the longest step, bare and through the graph, in ms; plus loading and memory."""
    before, began = resident_mb(), time.perf_counter()
    chain = stages()
    table = {"loading": {"ms": (time.perf_counter() - began) * 1000, "resident_mb": resident_mb() - before}}

    async def through_graph() -> None:
        async with Client(LocalRuntime(speech_graph())) as client:
            for name, text in TEXTS.items():
                bares, graphs = [], []
                for _ in range(repeats):  # in turn, so that what else the machine does falls on both
                    bares.append(bare(chain, text))
                    graphs.append(await graph(client, text))
                seconds = bares[0][2]
                table[name] = {
                    "audio_s": seconds,
                    "first_ms": statistics.median(row[0] for row in bares),
                    "whole_ms": statistics.median(row[1] for row in bares),
                    "rtf": statistics.median(row[1] for row in bares) / 1000 / seconds,
                    "longest_step_ms": statistics.median(max(row[3]) for row in bares),
                    "graph_first_ms": statistics.median(row[0][0] for row in graphs),
                    "graph_whole_ms": statistics.median(row[1] for row in graphs),
                }
            for count in (2, 4):
                rows = [await graph(client, TEXTS["one sentence"], count) for _ in range(repeats)]
                table[f"one sentence x {count}"] = {
                    "audio_s": rows[0][2],
                    "graph_first_ms": statistics.median(max(row[0]) for row in rows),
                    "graph_whole_ms": statistics.median(row[1] for row in rows),
                    "rtf": statistics.median(row[1] for row in rows) / 1000 / rows[0][2],
                }

    asyncio.run(through_graph())
    table["after all"] = {"resident_mb": resident_mb()}
    return table


def main() -> None:
    for name, row in measure().items():
        print(f"{name:20}", "  ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
