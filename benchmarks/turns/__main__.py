"""python -m benchmarks.turns [--real] [--turns N] [--transport webrtc]

Fixed-delay stubs (transcript 50 ms, first token 60 ms then 10 ms a token, first audio 80 ms; silence 200 ms): what the doors,
the session and the turn taking cost, with each head start switched off in turn. ``--real``: the CPU voice, silence 500 ms,
beside the serial sum of the same run. Rows are interleaved: round after round, so that a busy moment meets all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.cli.demo import QUESTION
from antiphon.codecs.media import decode
from benchmarks.machine import machine, table
from benchmarks.turns.client import Turn, turns

STUB_SILENCE_MS, REAL_SILENCE_MS = 200, 500
STUB_SERIAL_MS = 200 + 50 + 60 + 5 * 10 + 80
"""Silence, transcript, first token, the five tokens of the stub's first clause, first audio."""

STUB_ROWS = {
    "early responses": ([], 400),
    "transcript early only": (["--no-early"], 450),
    "nothing before the stop": (["--no-early", "--no-eager"], 500),
}


@contextmanager
def process(command: list[str], ready: str) -> Iterator[str]:
    """Start a server; yields the last word of the line that begins with ``ready``."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found: list[str] = []
    seen = threading.Event()

    def read() -> None:
        for line in running.stdout or ():
            if line.startswith(ready) and not found:
                found.append(line.split()[-1])
                seen.set()
        seen.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        seen.wait(180)
        if not found:
            raise SystemExit(f"{' '.join(command)} did not become ready")
        yield found[0]
    finally:
        running.terminate()
        running.wait(30)


def stub_server(flags: list[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.turns.stub_server", *flags]


def real_server(flags: list[str]) -> list[str]:
    return [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--log-level", "warning", *flags]


def server_vad(silence_ms: int) -> dict[str, Any]:
    return {"type": "server_vad", "silence_duration_ms": silence_ms}


def summary(name: str, done: list[Turn], reach: str) -> list[str]:
    heard = sorted(t.voice_to_voice for t in done if t.voice_to_voice is not None)
    if not heard:
        return [name, "nothing heard", "", "", "", reach]
    p95 = heard[min(len(heard) - 1, int(len(heard) * 0.95))]
    false = sum(t.false_starts for t in done)
    return [name, f"{statistics.median(heard):.0f}", f"{heard[0]:.0f}-{p95:.0f}", str(len(heard)), str(false), reach]


HEAD = ["setting", "median ms", "min-p95", "n", "false starts", "reach"]


async def on_stubs(speech: NDArray[np.float32], rounds: int, per_round: int) -> None:
    with ExitStack() as stack:
        urls = {name: stack.enter_context(process(stub_server(f), "ready")) for name, (f, _) in STUB_ROWS.items()}
        done: dict[str, list[Turn]] = {name: [] for name in urls}
        for _ in range(rounds):
            for name, url in urls.items():
                done[name] += await turns(url, [speech] * (per_round + 1), server_vad(STUB_SILENCE_MS))
    print(f"\non stubs; the serial sum of their delays and {STUB_SILENCE_MS} ms of silence is {STUB_SERIAL_MS} ms")
    print(table(HEAD, [summary(name, done[name], f"<= {reach}") for name, (_, reach) in STUB_ROWS.items()]))


async def on_the_cpu_voice(speech: NDArray[np.float32], rounds: int, per_round: int) -> None:
    rows = {
        "500 ms, early responses": ([], server_vad(REAL_SILENCE_MS)),
        "500 ms, nothing early": (["--early-responses", "off", "--no-early-transcripts"], server_vad(REAL_SILENCE_MS)),
        "200 ms, early responses": ([], server_vad(200)),
        "semantic_vad": ([], {"type": "semantic_vad"}),
    }
    done: dict[str, list[Turn]] = {name: [] for name in rows}
    for flags in ([], ["--early-responses", "off", "--no-early-transcripts"]):
        with process(real_server(flags), "Antiphon is ready at") as url:
            for _ in range(rounds):
                for name, (wanted, detection) in rows.items():
                    if wanted == flags:
                        done[name] += await turns(url, [speech] * (per_round + 1), detection)
    print("\non the CPU voice; nothing early is the serial sum: silence + transcript + first clause + first audio")
    print(table(HEAD, [summary(name, turns_, "") for name, turns_ in done.items()]))
    early, serial = (
        statistics.median(t.voice_to_voice for t in done[name] if t.voice_to_voice is not None)
        for name in ("500 ms, early responses", "500 ms, nothing early")
    )
    print(f"early / serial = {early / serial:.2f} (reach <= 0.75)")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="the CPU voice as well")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--transport", choices=("websocket", "webrtc"), default="websocket", help="webrtc: both, side by side")
    options = parser.parse_args()
    if options.transport == "webrtc":
        from benchmarks import calls

        await calls.main(options.turns, calls=10, seconds=15.0, real=options.real)
        return
    rounds = 3
    per_round = max(1, options.turns // rounds)
    speech = decode(QUESTION.read_bytes(), 24_000)
    print(machine())
    await on_stubs(speech, rounds, per_round)
    if options.real:
        await on_the_cpu_voice(speech, rounds, per_round)


if __name__ == "__main__":
    asyncio.run(main())
