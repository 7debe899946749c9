"""python -m benchmarks.long_talk [--turns 60] [--pause 4]

One conversation on the CPU voice that outgrows the model's context: how long each answer's first word takes, early in the
talk, late in it, and at the turns where the oldest ones were dropped. Between an answer and the next question the caller
listens and speaks for ``--pause`` seconds, in which a server may read ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.machine import machine, table
from benchmarks.turns.__main__ import process, real_server

TOPICS = ("bread", "the moon", "a bicycle", "Norway", "chess", "honey", "trains", "rain", "clocks", "tea", "paper", "whales")
QUESTIONS = (
    "Tell me three interesting things about {}, one sentence each.",
    "What would a child ask about {}? Answer it in two sentences.",
    "How would you explain {} to somebody from the year 1700?",
    "What is the most common mistake that people make about {}?",
)


async def ask(socket: ClientConnection, text: str) -> tuple[float, dict[str, Any]]:
    """Milliseconds to the first piece of text, and the usage."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    asked, first = time.monotonic(), 0.0
    async for message in socket:
        event = json.loads(message)
        if event["type"] == "response.output_text.delta" and not first:
            first = time.monotonic()
        elif event["type"] == "response.done":
            if event["response"]["status"] != "completed":
                raise SystemExit(f"a response ended {event['response']['status']}: {event['response']['status_details']}")
            return (first - asked) * 1000, event["response"]["usage"]
    raise SystemExit("the server closed the connection")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--pause", type=float, default=4.0)
    options = parser.parse_args()
    print(machine(), flush=True)
    rows: list[tuple[float, int, int]] = []
    with process(real_server([]), "Antiphon is ready at") as url:
        address = url.replace("http", "ws", 1) + "/v1/realtime?model=benchmark"
        async with connect(address, max_size=None, compression=None) as socket:
            session = {"type": "realtime", "output_modalities": ["text"]}
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            for n in range(options.turns):
                topic, question = TOPICS[n % len(TOPICS)], QUESTIONS[n // len(TOPICS) % len(QUESTIONS)]
                took, usage = await ask(socket, question.format(topic))
                cached = usage["input_token_details"]["cached_tokens"]
                rows.append((took, usage["input_tokens"], cached))
                print(f"turn {n + 1}: {took:.0f} ms, {usage['input_tokens']} tokens read, {cached} of them cached", flush=True)
                await asyncio.sleep(options.pause)
    cuts = [i for i in range(1, len(rows)) if rows[i][1] < rows[i - 1][1]]
    parts = {
        "first ten turns": rows[:10],
        "last ten turns": rows[-10:],
        "turns where the oldest were dropped": [rows[i] for i in cuts],
        "all": rows,
    }
    told = [
        [name, len(part), f"{statistics.median(r[0] for r in part):.0f}", f"{max(r[0] for r in part):.0f}"]
        for name, part in parts.items()
        if part
    ]
    print(table(["turns", "n", "median ms to the first word", "longest"], told))


if __name__ == "__main__":
    asyncio.run(main())
