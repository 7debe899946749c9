"""Qwen3-Omni on the graph: python -m benchmarks.qwen3_omni [--model DIR] [--device cuda:0] [--batches 1,2,4,8,16]

1. The graph against a bare loop of the same modules: same prompts, same tokens, same frames, no lanes, mail or credits.
2. Batch scaling: so many requests at once; frames a second, seconds of audio a second, time to first token and to first audio.
3. Aborts: from the asking to ``released``, and how long the device still worked then (it must be nothing).

Without ``--model`` it runs the tiny random model of the tests, so its seconds mean nothing but relative to each other.
``--published-size`` makes random weights of the published sizes on the device (nothing is read from disk), for a GPU:

    python -m benchmarks.qwen3_omni --published-size --device cuda:0 --tokens 40 --frames 80

The modules are loaded once and shared by graph and loop (about 71 GB in bfloat16 at the published size, and two KV caches).
Rounds are interleaved (graph, loop, graph, loop) and medians are shown; compare figures of one run only. On a CPU the
graph is held against the loop in CPU seconds, which neighbours on the machine disturb less; elsewhere in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from antiphon.pipelines.client import Client
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.outputs import AudioDelta, TextDelta
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest, Message, Sampling, TextPart
from antiphon.pipelines.runtime import LocalRuntime
from benchmarks import random_weights
from benchmarks.machine import machine, table
from benchmarks.qwen3_omni_loop import FIRST, QUESTION, THEN, BareLoop


def question(n: int, tokens: int, frames: int) -> GenerateRequest:
    """Greedy, and with limits that are reached, so that every run does the same work. Nobody listens: for a listener the graph
    makes no more than he can hear in a while, and waits."""
    return GenerateRequest(
        id=f"q{n}",
        task="chat",
        terminals=("text", "audio"),
        messages=(Message("user", (TextPart(QUESTION),)),),
        sampling=Sampling(max_tokens=tokens, temperature=0.0),
        stage_params={
            "talker": {"max_tokens": frames, "temperature": 0.0},
            "code2wav": {"first_chunk_frames": FIRST, "chunk_frames": THEN},
        },
        listener="none",
    )


async def through_graph(client: Client, batch: int, tokens: int, frames: int) -> dict[str, float]:
    """Seconds for all, frames and seconds of audio made, medians of the times to first token and audio."""
    firsts: dict[str, list[float]] = {"text": [], "audio": []}
    samples = 0

    async def one(n: int) -> None:
        nonlocal samples
        began = time.perf_counter()
        seen: set[str] = set()
        async for event in client.generate(question(n, tokens, frames)):
            if isinstance(event.data, TextDelta | AudioDelta) and event.terminal not in seen:
                seen.add(event.terminal)
                firsts[event.terminal].append(time.perf_counter() - began)
            if isinstance(event.data, AudioDelta):
                samples += len(event.data.pcm)

    begun, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(n) for n in range(batch)))
    seconds, cpu = time.perf_counter() - begun, time.process_time() - busy
    made = {"seconds": seconds, "cpu": cpu, "audio": samples / 24_000, "frames": (samples + 555 * batch) / 1920}
    # Random weights may say ids that have no text.
    return made | {f"first {name}": statistics.median(times or [math.nan]) for name, times in firsts.items()}


async def released(client: Client, device: str) -> tuple[float, float]:
    """Abort an answer at its first audio: seconds to ``released``, and seconds that the device was busy after it."""
    generation = client.generate(question(0, 400, 400))
    async for event in generation:
        if isinstance(event.data, AudioDelta):
            break
    asked = time.perf_counter()
    generation.abort()
    await generation.released()
    told = time.perf_counter()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return told - asked, time.perf_counter() - told


def share_weights() -> None:
    """The graph and the loop run the very same modules: real weights fit onto a device once."""
    load, held, loading = model.load, dict[tuple[str, Place], Any](), threading.Lock()

    def shared(part: str, config: Any, folder: Any, place: Place, cache_bytes: int = 0) -> Any:
        with loading:
            if (part, place) not in held:
                held[part, place] = load(part, config, folder, place, cache_bytes)
            return held[part, place]

    model.load = shared


async def measure(folder: str, options: argparse.Namespace) -> None:
    place = {"device": options.device, **({"dtype": options.dtype} if options.dtype else {})}
    share_weights()
    args: dict[str, dict[str, Any]] = {stage: place for stage in ("audio_encoder", "image_encoder")}
    # Every round asks the same: nothing is kept of one answer for the next, as the loop keeps nothing.
    args |= {stage: {**place, "kept_rows": 0} for stage in ("thinker", "talker_ar")}
    begun = time.perf_counter()
    loop = BareLoop(folder, place)
    tokens, frames = options.tokens, options.frames
    config = build(folder, stage_args={**args, "code2wav": {"device": options.device}})
    async with Client(LocalRuntime(config)) as client:
        print(f"loaded in {time.perf_counter() - begun:.0f} s")
        await through_graph(client, 1, 4, 6)
        rows = []
        for batch in options.batches:
            graph, bare = [], []
            for _ in range(options.rounds):
                graph.append(await through_graph(client, batch, tokens, frames))
                seconds, cpu, made = await asyncio.to_thread(loop.run, batch, tokens, frames)
                bare.append((cpu if options.device == "cpu" else seconds) / made)
            each = [g["cpu" if options.device == "cpu" else "seconds"] / g["frames"] for g in graph]
            middle = {key: statistics.median(g[key] for g in graph) for key in graph[0]}
            rows.append(
                (
                    str(batch),
                    f"{1e3 * statistics.median(each):.1f}",
                    f"{1e3 * statistics.median(bare):.1f}",
                    f"{100 * (statistics.median(e / b for e, b in zip(each, bare, strict=True)) - 1):+.0f} %",
                    f"{middle['frames'] / middle['seconds']:.1f}",
                    f"{middle['audio'] / middle['seconds']:.2f}",
                    f"{1e3 * middle['first text']:.0f}",
                    f"{1e3 * middle['first audio']:.0f}",
                )
            )
        aborts = [await released(client, options.device) for _ in range(options.rounds)]
    heads = ("requests", "graph ms/frame", "loop ms/frame", "graph over loop", "frames/s", "audio s/s", "TTFT ms", "TTFA ms")
    print(table(heads, rows))
    print(f"\n{tokens} tokens and {frames - 1} frames each, {options.rounds} rounds, {options.device}")
    after, busy = (statistics.median(column) for column in zip(*aborts, strict=True))
    print(f"abort to released: {1e3 * after:.1f} ms; the device was busy for {1e3 * busy:.2f} ms after that")
    if options.device != "cpu":
        print(f"at most {torch.cuda.max_memory_allocated(options.device) / 2**30:.1f} GiB were allocated on {options.device}")


@contextmanager
def checkpoint(options: argparse.Namespace) -> Iterator[str]:
    """The folder to run: the given one, the tests' tiny one, or random weights of the published sizes."""
    if options.model:
        yield options.model
        return
    from tests.qwen3_omni import published, tiny

    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        tiny.build(folder)
        if options.published_size:
            random_weights.resize(folder, published.CONFIG)
            model.load = random_weights.random
        yield str(folder)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a checkpoint folder")
    parser.add_argument("--published-size", action="store_true", help="random weights of the published sizes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="", help="float32 on a CPU and bfloat16 elsewhere, if not given")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--frames", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    options = parser.parse_args(argv)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(machine())
    with checkpoint(options) as folder:
        asyncio.run(measure(folder, options))


if __name__ == "__main__":
    main()
