"""Twenty chats at once over HTTP on the real CPU voice, ten of them spoken: `python -m benchmarks.streams [--streams N]`.

A server is started as its users start it. Each request is first asked alone, then all together (greedy): are the words,
and the sound, what they were alone? First token and first audio are taken in the client; an underrun is a moment when a
player that began 100 ms after the first sound has nothing left to play.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.machine import machine, table

QUESTIONS = (
    "What is the capital of France?", "Name three colours.", "How many days has a week?", "What do bees make?",
    "Which animal says moo?", "What is two plus three?", "Where do fish live?", "Name a fruit that is yellow.",
    "What is the opposite of hot?", "Which season comes after winter?",
)  # fmt: skip
BYTES_PER_S = 48_000
BUFFER_S = 0.1


@dataclass
class Stream:
    """What one client saw. Times in seconds after it asked."""

    spoken: bool
    text: str = ""
    first_token: float | None = None
    first_audio: float | None = None
    ended: float = 0.0
    underruns: int = 0
    starved_s: float = 0.0
    bytes: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)
    _plays_until: float = 0.0

    @property
    def sound(self) -> str:
        return str(self._hash.hexdigest())

    def hear(self, pcm: bytes, now: float) -> None:
        if self.first_audio is None:
            self.first_audio = now
            self._plays_until = now + BUFFER_S
        elif now > self._plays_until:
            self.underruns += 1
            self.starved_s += now - self._plays_until
            self._plays_until = now
        self._plays_until += len(pcm) / BYTES_PER_S
        self.bytes += len(pcm)
        self._hash.update(pcm)


async def ask(http: httpx.AsyncClient, question: str, spoken: bool) -> Stream:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": question}], "stream": True, "temperature": 0, "max_tokens": 40
    }  # fmt: skip
    if spoken:
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "default", "format": "pcm16"}}
    seen, began = Stream(spoken), time.perf_counter()
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter() - began
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                audio = choice["delta"].get("audio") or {}
                if words := choice["delta"].get("content") or audio.get("transcript"):
                    seen.first_token = seen.first_token or now
                    seen.text += words
                if audio.get("data"):
                    seen.hear(base64.b64decode(audio["data"]), now)
    seen.ended = time.perf_counter() - began
    return seen


async def measure(url: str, streams: int) -> tuple[list[Stream], list[Stream]]:
    """Alone one after another, then all at once."""
    plan = [(QUESTIONS[n // 2 % len(QUESTIONS)], n % 2 == 1) for n in range(streams)]
    limits = httpx.Limits(max_connections=streams + 2)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        await ask(http, "Hello.", True)
        alone = [await ask(http, question, spoken) for question, spoken in plan]
        together = await asyncio.gather(*(ask(http, question, spoken) for question, spoken in plan))
    return alone, list(together)


@contextmanager
def server() -> Iterator[str]:
    """``antiphon serve`` on a free port, ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "antiphon", "serve", "--port", str(port), "--no-realtime", "--log-level", "warning"]
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}")
            try:
                if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def quantiles(values: list[float]) -> str:
    """p50 / p95 in ms."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return f"{statistics.median(ordered) * 1000:.0f} / {p95 * 1000:.0f}"


def row(name: str, streams: list[Stream]) -> list[str]:
    spoken = [s for s in streams if s.spoken]
    heard_s = sum(s.bytes for s in spoken) / BYTES_PER_S
    return [
        name,
        quantiles([s.first_token for s in streams if s.first_token is not None]),
        quantiles([s.first_audio for s in spoken if s.first_audio is not None]),
        quantiles([s.ended for s in streams]),
        f"{sum(s.underruns > 0 for s in spoken)} of {len(spoken)}",
        f"{sum(s.starved_s for s in spoken):.1f} of {heard_s:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--url", help="of a server that runs already")
    options = parser.parse_args()
    streams = options.streams
    print(machine())
    with nullcontext(options.url) if options.url else server() as url:
        alone, together = asyncio.run(measure(url, streams))
    head = [
        "",
        "first token p50/p95 ms",
        "first audio p50/p95 ms",
        "whole p50/p95 ms",
        "streams that starved",
        "starved s of heard s",
    ]
    print(table(head, [row("alone", alone), row(f"{streams} at once", together)]))
    words = sum(a.text == b.text for a, b in zip(alone, together, strict=True))
    sounds = [a.sound == b.sound for a, b in zip(alone, together, strict=True) if a.spoken]
    print(f"the same words as alone: {words} of {streams}; the same samples: {sum(sounds)} of {len(sounds)}")
    for a, b in zip(alone, together, strict=True):
        if a.text != b.text:
            print(f"  alone {a.text!r}, together {b.text!r}")


if __name__ == "__main__":
    main()
