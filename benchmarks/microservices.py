"""The same local voice as one graph, and as three HTTP/JSON services that a user would glue together: side by side.

    python -m benchmarks.microservices [--rounds N] [--clip FILE] [--json FILE]

Every service is this project's own REST server with one role loaded (``antiphon serve --processes one``), so models,
weights, settings and prompt are the same; what differs is what lies between them. The glue does what glue does: it posts the
recording, streams the answer, and has every sentence spoken as soon as it is complete. Rounds alternate; every round's
recording is a little louder or softer than the last, so that no cache of media answers for anyone.

First audio: from the moment the whole recording is at hand to the first samples. CPU: of all processes that take part,
the asking one too.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
import soxr

from antiphon.pipelines.client import Client
from antiphon.pipelines.local.prompts import SPOKEN_HINT
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest, Message, Sampling, TextPart
from benchmarks.machine import machine, table

SHARED = Path(os.environ.get("ANTIPHON_SHARED", "../shared"))
NOBODY = "openai:http://127.0.0.1:9/v1#nobody"
ROLES = ("transcriber", "thinker", "talker")
MAX_TOKENS = 40
INSTRUCTIONS = "You are a helpful assistant. Answer in two or three sentences."
"""With the hint that the graph adds to the prompt of whoever is answered aloud, word for word the same for both."""
SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass
class Turn:
    """Seconds to the first audio and to the last, seconds of CPU, what was heard and said, samples of audio."""

    first_s: float
    all_s: float
    cpu_s: float
    heard: str
    said: str
    samples: int


def clip(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """16 kHz mono, as far as three seconds: a question."""
    pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return np.asarray(soxr.resample(pcm[:, 0], rate, 16_000), np.float32)


def used(pids: list[int]) -> float:
    """Seconds of CPU of these processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Graph:
    """The pipeline over processes, asked as a door asks it."""

    def __init__(self, split: str) -> None:
        local = {"builder": "antiphon.pipelines.local.pipeline:build", "args": {}, "split": split}
        self.name = {"split": "graph, models in one process", "apart": "graph, every stage apart"}[split]
        self.client = Client(ProcessRuntime(PipelineSpec("antiphon.pipelines.splits:build", local)))
        self.count = 0

    @property
    def pids(self) -> list[int]:
        return [int(p["place"].split()[1]) for p in self.client.health()["processes"].values()]

    async def ask(self, pcm: np.ndarray[Any, np.dtype[np.float32]]) -> Turn:
        self.count += 1
        began, heard, said, samples, first = time.monotonic(), "", "", 0, 0.0
        request = GenerateRequest(
            id=f"r{self.count}",
            task="chat",
            terminals=("text", "audio", "transcript"),
            messages=(
                Message("system", (TextPart(INSTRUCTIONS),)),
                Message("user", (AudioPart(pcm.tobytes(), PCM_F32_16K),)),
            ),
            sampling=Sampling(max_tokens=MAX_TOKENS, temperature=0.0),
        )
        generation = self.client.generate(request)
        async for event in generation:
            if event.terminal == "transcript" and event.last and event.data is not None:
                heard = event.data.text
            elif event.terminal == "text" and not event.last:
                said += event.data.text
            elif event.terminal == "audio" and not event.last:
                first = first or time.monotonic() - began
                samples += event.data.pcm.size
        await generation.released()
        return Turn(first, time.monotonic() - began, 0.0, heard, said, samples)


@asynccontextmanager
async def graph(split: str) -> AsyncIterator[Graph]:
    found = Graph(split)
    async with found.client:
        yield found


class Services:
    """Three servers and their glue."""

    name = "three HTTP/JSON services"

    def __init__(self) -> None:
        self.ports = dict(zip(ROLES, free_ports(len(ROLES)), strict=True))
        self.servers = [self._start(role) for role in ROLES]
        self.http = httpx.AsyncClient(timeout=120)

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        others = [flag for other in ROLES if other != role for flag in (f"--{other}", NOBODY)]
        common = ["--processes", "one", "--no-realtime", "--port", str(self.ports[role]), "--log-level", "error"]
        command = [sys.executable, "-m", "antiphon", "serve", *common, *others]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    def url(self, role: str, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[role]}{path}"

    async def ready(self, limit_s: float = 180.0) -> None:
        async with asyncio.timeout(limit_s):
            for role, server in zip(ROLES, self.servers, strict=True):
                while True:
                    if server.poll() is not None:
                        raise RuntimeError(f"the {role} service ended with status {server.returncode}")
                    try:
                        if (await self.http.get(self.url(role, "/health"))).status_code == 200:
                            break
                    except httpx.TransportError:
                        pass
                    await asyncio.sleep(0.1)

    async def ask(self, pcm: np.ndarray[Any, np.dtype[np.float32]]) -> Turn:
        began = time.monotonic()
        wav = io.BytesIO()
        soundfile.write(wav, pcm, 16_000, format="WAV", subtype="FLOAT")
        files = {"file": ("question.wav", wav.getvalue())}
        told = await self.http.post(self.url("transcriber", "/v1/audio/transcriptions"), files=files, data={"model": "whisper"})
        heard = told.raise_for_status().json()["text"]
        sentences: asyncio.Queue[str | None] = asyncio.Queue()
        voice = asyncio.create_task(self._speak(sentences, began))
        said = await self._think(heard, sentences)
        first, samples = await voice
        return Turn(first, time.monotonic() - began, 0.0, heard, said, samples)

    async def _think(self, heard: str, sentences: asyncio.Queue[str | None]) -> str:
        body = {
            "model": "thinker",
            "messages": [{"role": "system", "content": f"{INSTRUCTIONS}\n{SPOKEN_HINT}"}, {"role": "user", "content": heard}],
            "stream": True,
            "temperature": 0.0,
            "max_tokens": MAX_TOKENS,
        }
        said = pending = ""
        async with self.http.stream("POST", self.url("thinker", "/v1/chat/completions"), json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                choices = json.loads(line[6:])["choices"]
                delta = (choices[0]["delta"].get("content") or "") if choices else ""
                said += delta
                *whole, pending = SENTENCE.split(pending + delta)
                for sentence in whole:
                    await sentences.put(sentence)
        if pending.strip():
            await sentences.put(pending)
        await sentences.put(None)
        return said

    async def _speak(self, sentences: asyncio.Queue[str | None], began: float) -> tuple[float, int]:
        first, size = 0.0, 0
        while (sentence := await sentences.get()) is not None:
            body = {"model": "talker", "input": sentence, "voice": "default", "response_format": "pcm"}
            async with self.http.stream("POST", self.url("talker", "/v1/audio/speech"), json=body) as response:
                response.raise_for_status()
                async for piece in response.aiter_bytes():
                    first = first or time.monotonic() - began
                    size += len(piece)
        return first, size // 2

    async def stop(self) -> None:
        await self.http.aclose()
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            await asyncio.to_thread(server.wait)


@asynccontextmanager
async def services() -> AsyncIterator[Services]:
    found = Services()
    try:
        await found.ready()
        yield found
    finally:
        await found.stop()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


async def compare(question: np.ndarray[Any, np.dtype[np.float32]], rounds: int) -> dict[str, list[Turn]]:
    async with AsyncExitStack() as stack:
        ways: list[Graph | Services] = [await stack.enter_async_context(graph("split"))]
        ways.append(await stack.enter_async_context(graph("apart")))
        ways.append(await stack.enter_async_context(services()))
        turns: dict[str, list[Turn]] = {way.name: [] for way in ways}
        for round_ in range(rounds + 1):
            for way in ways:
                louder = np.float32(0.8 + 0.2 * round_ / (rounds + 1))
                pids = way.pids
                before, own = used(pids), time.process_time()
                turn = await way.ask(question * louder)
                turn.cpu_s = used(pids) - before + time.process_time() - own
                if round_:  # the first one warms up
                    turns[way.name].append(turn)
        return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clip", type=Path, default=SHARED / "audio" / "jfk.flac")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    turns = asyncio.run(compare(clip(options.clip), options.rounds))
    rows = []
    for name, those in turns.items():
        median = {key: statistics.median(getattr(t, key) for t in those) for key in ("first_s", "all_s", "cpu_s", "samples")}
        row = [f"{median[k] * 1e3:.0f}" for k in ("first_s", "all_s", "cpu_s")]
        rows.append([name, *row, f"{max(t.first_s for t in those) * 1e3:.0f}", f"{median['samples'] / 24_000:.2f}"])
    print(machine())
    print(table(["", "first audio ms", "all ms", "CPU ms", "worst first ms", "audio s"], rows))
    for name, those in turns.items():
        print(f"{name}: heard {those[-1].heard!r}, said {those[-1].said!r}")
    if options.json:
        options.json.write_text(json.dumps({name: [asdict(t) for t in those] for name, those in turns.items()}, indent=1))


if __name__ == "__main__":
    main()
