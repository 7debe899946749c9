"""python -m benchmarks.pauses FOLDER [--rounds 3]

False ends of turns per 100 human pauses. Every recording of people in FOLDER is spoken to a server (fixed-delay stubs, the
real ears and Smart Turn) in real time, once for each setting; a turn that is said to be over before the recording's last
voiced sample is a false end: there an agent would have talked into the speaker's breath. A pause is 100 ms or more inside
the recording in which no 20 ms lie within 20 dB of its loud part, whatever the ears say.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from antiphon.codecs.media import decode
from antiphon.codecs.pcm import to_s16
from benchmarks.machine import machine, table
from benchmarks.turns.__main__ import process, stub_server

RATE, FRAME = 24_000, 480
SPEECH = (".wav", ".mp3", ".flac", ".ogg")
NOT_SPEECH = ("cough",)
FAINT_DB = 20.0
SHORTEST_PAUSE = 5
"""Frames of 20 ms."""
TAIL_S = 4.0
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"server_vad {ms} ms": {"type": "server_vad", "silence_duration_ms": ms} for ms in (200, 300, 500, 700)},
    **{f"semantic_vad {e}": {"type": "semantic_vad", "eagerness": e} for e in ("high", "auto", "low")},
}


@dataclass
class Recording:
    """float32 24 kHz. ``pauses``: the lengths of the silences inside it, in ms; ``end_ms``: of its last voiced frame."""

    name: str
    samples: NDArray[np.float32]
    pauses: list[int]
    end_ms: int


@dataclass
class Heard:
    false_ends: int = 0
    wait_ms: float | None = None
    """From the last voiced frame to the news that the turn is over."""


def read(path: Path) -> Recording:
    samples = decode(path.read_bytes(), RATE)
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    level = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-12)
    voiced = np.flatnonzero(level > np.percentile(level, 90) - FAINT_DB)
    gaps = np.diff(voiced) - 1
    pauses = [int(gap) * 20 for gap in gaps if gap >= SHORTEST_PAUSE]
    return Recording(path.name, samples, pauses, int(voiced[-1] + 1) * 20)


async def speak(url: str, recording: Recording, detection: dict[str, Any]) -> Heard:
    heard = Heard()
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=benchmark"
    async with connect(address, max_size=None, compression=None) as socket:
        audio = {"input": {"turn_detection": {**detection, "create_response": False}}}
        await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "audio": audio}}))
        began = time.monotonic()

        async def listen() -> None:
            async for message in socket:
                event = json.loads(message)
                if event["type"] != "input_audio_buffer.speech_stopped":
                    continue
                late = (time.monotonic() - began) * 1000 - recording.end_ms
                if late < 0:
                    heard.false_ends += 1
                else:
                    heard.wait_ms = heard.wait_ms or late

        listening = asyncio.create_task(listen())
        whole = np.concatenate([recording.samples, np.zeros(int(TAIL_S * RATE), np.float32)])
        for at in range(0, len(whole), FRAME):
            data = base64.b64encode(to_s16(whole[at : at + FRAME])).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": data}))
            await asyncio.sleep(max(0.0, began + (at + FRAME) / RATE - time.monotonic()))
            if heard.wait_ms is not None:
                break
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return heard


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    paths = sorted(p for p in options.folder.iterdir() if p.suffix in SPEECH and not p.stem.startswith(NOT_SPEECH))
    recordings = [read(path) for path in paths]
    if not any(one.pauses for one in recordings):
        raise SystemExit(f"nobody pauses in the {len(recordings)} recordings of {options.folder}")
    print(machine())
    for one in recordings:
        print(f"{one.name}: {len(one.samples) / RATE:.1f} s, pauses of {sorted(one.pauses)} ms")
    total = options.rounds * sum(len(one.pauses) for one in recordings)
    rows = []
    with process(stub_server([]), "ready") as url:
        for name, detection in SETTINGS.items():
            heard = [
                result
                for _ in range(options.rounds)
                for result in await asyncio.gather(*(speak(url, one, detection) for one in recordings))
            ]
            false = sum(h.false_ends for h in heard)
            waits = sorted(h.wait_ms for h in heard if h.wait_ms is not None)
            rows.append(
                [
                    name,
                    false,
                    total,
                    f"{100 * false / total:.0f}",
                    f"{waits[len(waits) // 2]:.0f}",
                    f"{waits[-1]:.0f}",
                    len(waits),
                ]
            )
    print(table(["setting", "false ends", "pauses", "per 100", "median wait ms", "longest", "ended"], rows))


if __name__ == "__main__":
    asyncio.run(main())
