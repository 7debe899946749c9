"""python -m benchmarks.turns.peers [--turns N]: ours, pipecat and livekit-agents on the same backends, interleaved.

Every server calls one process of fixed delays over HTTP (``backends.py``); turns end after 200 ms of silence by Silero, the
fastest rule each of them has. Times are taken in the client, from samples. The peers' environment is made under .cache/peers.
speech-to-speech is not run: it needs a model hub at start-up and several GB.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from antiphon.cli.demo import QUESTION
from antiphon.codecs.media import decode
from antiphon.codecs.pcm import from_s16, to_s16
from benchmarks.machine import machine, table
from benchmarks.turns.__main__ import HEAD, STUB_SERIAL_MS, process, server_vad, summary
from benchmarks.turns.client import AUDIBLE, VOICED, Turn, turns

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[2] / ".cache" / "peers"
SILENCE_S = 0.2
RATE, FRAME = 16_000, 320
PEERS = {"pipecat 1.14.0": "pipecat_bot.py", "livekit-agents 1.8.9": "livekit_agent.py"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def environment() -> Path:
    """The peers' Python, made on first use."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != (HERE / "requirements.txt").read_text():
        print("installing the peers under .cache/peers ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "requirements.txt")]
        subprocess.run(command, check=True)
        shutil.copy(HERE / "requirements.txt", stamp)
    return python


async def peer_turns(port: int, speech: NDArray[np.float32], count: int) -> list[Turn]:
    """``count`` turns over raw PCM (16 kHz in, 24 kHz out); the first is dropped."""
    done: list[Turn] = []
    audible: list[float] = []
    last_voiced = int(np.flatnonzero(np.abs(speech) > VOICED)[-1])
    async with connect(f"ws://127.0.0.1:{port}", max_size=None) as peer:

        async def listen() -> None:
            async for message in peer:
                if isinstance(message, bytes) and np.any(np.abs(from_s16(message[: len(message) & ~1])) > AUDIBLE):
                    audible.append(time.monotonic())  # noqa: PERF401 - each at its own moment

        listening = asyncio.create_task(listen())
        for _ in range(count + 1):
            audible.clear()
            began = time.monotonic()
            end = began + last_voiced / RATE
            sent = 0
            while time.monotonic() < end + 6.0:
                frame = np.zeros(FRAME, np.float32)
                piece = speech[sent : sent + FRAME]
                frame[: piece.size] = piece
                await asyncio.sleep(max(0.0, began + sent / RATE - time.monotonic()))
                await peer.send(to_s16(frame))
                sent += FRAME
                if any(t >= end for t in audible) and time.monotonic() - audible[-1] > 1.2:
                    break
            late = [t for t in audible if t >= end]
            done.append(Turn((late[0] - end) * 1000 if late else None, sum(t < end for t in audible)))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return done[1:]


@contextmanager
def peer(command: list[str]) -> Iterator[None]:
    """A peer says nothing when it is ready; its port does."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait(20)


async def reachable(port: int) -> None:
    for _ in range(120):
        try:
            async with connect(f"ws://127.0.0.1:{port}"):
                return
        except (OSError, WebSocketException):
            await asyncio.sleep(0.5)
    raise SystemExit(f"the peer on port {port} did not start")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    python = environment()
    per_round = max(1, options.turns // 3)
    ears, ours = decode(QUESTION.read_bytes(), RATE), decode(QUESTION.read_bytes(), 24_000)
    with ExitStack() as stack:
        backends = free_port()
        url = stack.enter_context(process([sys.executable, "-m", "benchmarks.turns.peers.backends", str(backends)], "ready"))
        roles = [f"--{role}=openai:{url}#stub" for role in ("thinker", "transcriber", "talker")]
        serve = [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--log-level", "warning", *roles]
        antiphon = {
            "antiphon, early responses": [*serve, "--early-responses", "on"],
            "antiphon, nothing early": [*serve, "--early-responses", "off", "--no-early-transcripts"],
        }
        addresses = {n: stack.enter_context(process(c, "Antiphon is ready at")) for n, c in antiphon.items()}
        ports = {}
        for name, script in PEERS.items():
            ports[name] = free_port()
            command = [str(python), str(HERE / script), str(ports[name]), url, str(SILENCE_S)]
            stack.enter_context(peer(command))
            await reachable(ports[name])
        done: dict[str, list[Turn]] = {name: [] for name in (*addresses, *ports)}
        for _ in range(3):
            for name, address in addresses.items():
                done[name] += await turns(address, [ours] * (per_round + 1), server_vad(int(SILENCE_S * 1000)))
            for name, port in ports.items():
                done[name] += await peer_turns(port, ears, per_round)
    print(machine())
    print(f"serial sum of the delays and of {SILENCE_S * 1000:.0f} ms of silence: {STUB_SERIAL_MS} ms")
    print(table(HEAD, [summary(name, turns_, "") for name, turns_ in done.items()]))
    medians = {
        name: statistics.median(heard)
        for name, turns_ in done.items()
        if (heard := [t.voice_to_voice for t in turns_ if t.voice_to_voice is not None])
    }
    best = min((medians[name] for name in PEERS if name in medians), default=0.0)
    if best:
        print(f"antiphon / the best peer = {medians['antiphon, early responses'] / best:.2f} (reach <= 0.7)")


if __name__ == "__main__":
    asyncio.run(main())
