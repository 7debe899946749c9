"""python -m benchmarks.sessions [--levels 1,2,4,8,16] [--turns 4] [--real] [--idle 500] [--visits 500]

Speaking sessions on fixed-delay stubs (see benchmarks.turns), silence 500 ms: voice-to-voice, underruns of a simulated
player (100 ms), the server's memory and CPU. Then idle sockets, and connections that come and go in every way, with the
server's tasks, descriptors and memory before and after. ``--real``: speaking sessions on the CPU voice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from antiphon.cli.demo import QUESTION
from antiphon.codecs.media import decode
from benchmarks.machine import machine, table
from benchmarks.sessions.player import talk
from benchmarks.turns.__main__ import process, real_server, stub_server

SILENCE_MS = 500
HEAD = ["sessions", "p50 ms", "p95 ms", "turns", "unanswered", "underruns", "answers", "RSS MB", "CPU s/s"]
REACH = {1: 560, 16: 650}


class Process:
    """What the operating system knows of the server and its workers."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _all(self) -> list[int]:
        found = [self.pid]
        for pid in found:
            with suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    found += [int(p) for p in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        return found

    def rss_mb(self) -> float:
        return sum(self._field(pid, "VmRSS") for pid in self._all()) / 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        ticks = 0
        for pid in self._all():
            with suppress(OSError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _field(pid: int, name: str) -> int:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(name):
                    return int(line.split()[1])
        return 0


def listening_pid(port: int) -> int:
    """The process that listens on a port (Linux)."""
    wanted = f":{port:04X} "
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if wanted in line.split(maxsplit=2)[1] + " " and line.split()[3] == "0A"
    )
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    return int(pid)
    raise SystemExit(f"nobody listens on {port}")


async def speaking(url: str, speech: NDArray[np.float32], count: int, per_session: int, patience_s: float) -> list[Any]:
    """One row of the table; sessions begin spread over two seconds, as people do."""
    port = int(url.split(":")[2].split("/")[0])
    seen, rng = Process(listening_pid(port)), random.Random(count)
    began, cpu = time.monotonic(), seen.cpu_s()
    talks = (talk(url, speech, per_session, SILENCE_MS, rng.uniform(0, 2), patience_s) for _ in range(count))
    done = await asyncio.gather(*talks)
    spent = (seen.cpu_s() - cpu) / (time.monotonic() - began)
    turns = [turn for one in done for turn in one.turns]
    heard = sorted(t.voice_to_voice for t in turns if t.voice_to_voice is not None)
    p95 = heard[min(len(heard) - 1, int(0.95 * len(heard)))] if heard else float("nan")
    return [
        count,
        f"{statistics.median(heard):.0f}" if heard else "-",
        f"{p95:.0f}",
        len(turns),
        len(turns) - len(heard),
        sum(one.player.underruns for one in done),
        sum(one.player.answers for one in done),
        f"{seen.rss_mb():.0f}",
        f"{spent:.2f}",
    ]


async def idle(url: str, count: int) -> str:
    """So many sockets that say nothing: memory and CPU for each."""
    seen = Process(listening_pid(int(url.split(":")[2].split("/")[0])))
    rss = seen.rss_mb()
    sockets = [await connect(url, max_size=None, compression=None, open_timeout=60) for _ in range(count)]
    cpu = seen.cpu_s()
    await asyncio.sleep(5.0)
    spent, grown = (seen.cpu_s() - cpu) / 5, seen.rss_mb() - rss
    await asyncio.gather(*(s.close() for s in sockets))
    return f"{count} idle sockets: {grown * 1024 / count:.0f} KB each, {spent * 100:.1f} % of a core"


async def visits(url: str, speech: NDArray[np.float32], count: int) -> str:
    """Connections that come and go in every way; what they leave behind in the server."""
    http = url.replace("ws", "http", 1).split("/v1")[0]
    seen = Process(listening_pid(int(url.split(":")[2].split("/")[0])))

    async def visit(n: int) -> None:
        socket = await connect(url, max_size=None, compression=None, open_timeout=60)
        if n % 3:
            await socket.send('{"type":"response.create"}')
        if n % 2:
            await asyncio.sleep(0.05)
        if n % 5 == 0:
            socket.transport.abort()
        else:
            await socket.close()

    async def round_(number: int) -> tuple[int, float]:
        for start in range(0, number, 25):
            await asyncio.gather(*(visit(n) for n in range(start, start + 25)))
        await asyncio.sleep(3.0)
        return seen.descriptors(), seen.rss_mb()

    first = await round_(100)
    last = await round_(count)
    async with httpx.AsyncClient() as asking:
        text = (await asking.get(f"{http}/metrics")).text
    left = next(line for line in text.splitlines() if line.startswith('antiphon_sessions_open{transport="websocket"}'))
    return (
        f"{count} connects and disconnects: descriptors {first[0]} -> {last[0]}, "
        f"RSS {first[1]:.0f} -> {last[1]:.0f} MB, open sessions left {float(left.split()[-1]):.0f}"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="1,2,4,8,16")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--visits", type=int, default=500)
    parser.add_argument("--real", action="store_true", help="speaking sessions on the CPU voice instead of stubs")
    options = parser.parse_args()
    speech = decode(QUESTION.read_bytes(), 24_000)
    print(machine())
    levels = [int(level) for level in options.levels.split(",")]
    with process(real_server([]), "Antiphon is ready at") if options.real else process(stub_server([]), "ready") as address:
        url = address.replace("http", "ws", 1) + "/v1/realtime?model=benchmark"
        rows = [await speaking(url, speech, n, options.turns, 60.0 if options.real else 8.0) for n in levels]
        print(
            table(
                [*HEAD, "reach"],
                [[*row, f"<= {REACH[row[0]]}" if row[0] in REACH and not options.real else ""] for row in rows],
            )
        )
        if not options.real:
            if options.idle:
                print(await idle(url, options.idle))
            if options.visits:
                print(await visits(url, speech, options.visits))


if __name__ == "__main__":
    asyncio.run(main())
