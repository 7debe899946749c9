"""Is what the history keeps what was really heard? python -m benchmarks.heard [--cuts N]

Answers spoken by the CPU voice over a real socket are truncated at random moments; the transcript that the server then keeps
is compared with what a recogniser, which took no part in the marks, reads in exactly the audio that was played.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import re
import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from antiphon.codecs.pcm import from_s16
from antiphon.codecs.resample import convert
from antiphon.pipelines import weights
from antiphon.pipelines.local.reading import Reading
from antiphon.pipelines.local.readings import read
from antiphon.pipelines.local.whisper import Recogniser
from antiphon.pipelines.requests import Transcription
from benchmarks.machine import machine, table
from benchmarks.turns.__main__ import process, real_server

RATE = 24_000
QUESTIONS = (
    "Say three sentences about the sea.",
    "Why is the sky blue?",
    "What should I pack for a week in the mountains?",
    "Tell me how bread is made.",
    "Describe an ordinary morning in a big city.",
)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


def distance(kept: list[str], heard: list[str]) -> int:
    """Words inserted, left out or changed (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, a in enumerate(kept, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


async def until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Events up to the first of this type."""
    seen = []
    async for message in socket:
        event = json.loads(message)
        if event["type"] == "error":
            raise SystemExit(event["error"]["message"])
        seen.append(event)
        if event["type"] == kind:
            return seen
    raise SystemExit(f"the server closed before {kind}")


async def answer(socket: ClientConnection, question: str) -> tuple[str, NDArray[np.float32]]:
    """(item id, its audio)"""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    events = await until(socket, "response.done")
    deltas = [e for e in events if e["type"] == "response.output_audio.delta"]
    return deltas[0]["item_id"], np.concatenate([from_s16(base64.b64decode(e["delta"])) for e in deltas])


async def kept_after(socket: ClientConnection, item_id: str, audio_end_ms: int) -> str:
    at = {"item_id": item_id, "content_index": 0, "audio_end_ms": audio_end_ms}
    await socket.send(json.dumps({"type": "conversation.item.truncate", **at}))
    await until(socket, "conversation.item.truncated")
    await socket.send(json.dumps({"type": "conversation.item.retrieve", "item_id": item_id}))
    item = (await until(socket, "conversation.item.retrieved"))[-1]["item"]
    return str(item["content"][0].get("transcript") or "")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=20)
    options = parser.parse_args()
    dice = random.Random(20)
    recogniser = Recogniser(weights.ensure("whisper-base-ct2"))
    print(machine())
    rows: list[list[object]] = []
    differences = []
    with process(real_server([]), "Antiphon is ready at") as url:
        address = url.replace("http", "ws", 1) + "/v1/realtime?model=benchmark"
        async with connect(address, max_size=None, compression=None) as socket:
            short = {
                "type": "realtime",
                "instructions": "You are a voice assistant. Answer in two short sentences, without numbers.",
            }
            await socket.send(json.dumps({"type": "session.update", "session": short}))
            for question in QUESTIONS:
                item_id, audio = await answer(socket, question)
                audio = audio[: 25 * RATE]  # one window of the recogniser
                for _ in range(options.cuts // len(QUESTIONS)):
                    cut_ms = dice.randrange(400, max(401, int(audio.size / RATE * 1000)))
                    kept = words(await kept_after(socket, item_id, cut_ms))
                    played = convert(audio[: cut_ms * RATE // 1000], RATE, 16_000)
                    heard = words(read(Reading(recogniser, None, played, Transcription(language="en"))).text)
                    differences.append(distance(kept, heard))
                    rows.append([cut_ms, differences[-1], " ".join(kept[-4:]), " ".join(heard[-4:])])
    print(table(["played ms", "words apart", "kept ends", "heard ends"], rows))
    print(f"cuts {len(differences)}: median {statistics.median(differences):.0f}, most {max(differences)} words apart")


if __name__ == "__main__":
    asyncio.run(main())
