"""0 stale bytes: an external client, the real server on the CPU voice, N interruptions at random moments.

python -m benchmarks.interruptions [--count 100] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.machine import machine
from tests.clients import serving
from tests.realtime.interrupting import Interruption, interrupt

PER_SESSION = 10
"""A fresh conversation now and then: what is measured is the interruption, not a full context."""


async def in_sessions(url: str, speech: NDArray[np.float32], count: int, seed: int) -> list[Interruption]:
    found: list[Interruption] = []
    while len(found) < count:
        found += await interrupt(url, speech, min(PER_SESSION, count - len(found)), seed + len(found))
        print(f"{len(found)} interruptions, {sum(i.stale for i in found)} stale bytes", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with serving.server(serving.REAL) as port, tempfile.TemporaryDirectory() as folder:
        samples, _ = soundfile.read(serving.recording(port, Path(folder)), dtype="float32")
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        found = asyncio.run(in_sessions(url, np.asarray(samples, np.float32), options.count, options.seed))
    told = {
        "interruptions": len(found),
        "stale_bytes": sum(i.stale for i in found),
        "on_unfinished_responses": sum(i.unfinished for i in found),
        "before_the_first_audio": sum(i.before_audio for i in found),
        "seconds_of_audio_before": round(sum(i.audio_s for i in found), 1),
        "responses_with_one_end": sum(i.ends == 1 for i in found),
    }
    print(machine())
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
