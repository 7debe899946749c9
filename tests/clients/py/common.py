"""What every script here shares: the recording, the log of events, the report that run.py reads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
import wave
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ["ANTIPHON_URL"]  # ws://host:port/v1/realtime
HTTP_URL = os.environ["ANTIPHON_HTTP_URL"]  # http://host:port/v1
KEY = os.environ.get("ANTIPHON_KEY", "dummy")
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
STORY = "Tell me a long story about a lighthouse keeper, his dog and a storm, with every detail."
PATIENCE_S = 30.0
RATE = 24_000


def recording(name: str = "SPEECH") -> bytes:
    """24 kHz mono s16le."""
    with wave.open(os.environ[f"ANTIPHON_{name}"]) as file:
        assert file.getframerate() == RATE
        return file.readframes(file.getnframes())


async def speak(append: Callable[[bytes], Awaitable[Any]], silence_ms: int = 3000) -> None:
    """The recording in pieces of 40 ms, four times as fast as it was spoken, and silence behind it."""
    pcm = recording() + bytes(48 * silence_ms)
    for start in range(0, len(pcm), 1920):
        await append(pcm[start : start + 1920])
        await asyncio.sleep(0.01)


class Log:
    """Everything that came, in order; ``next`` finds what comes after the last find."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.at = 0
        self._changed = asyncio.Event()

    def push(self, event: Any) -> None:
        self.seen.append(event)
        self._changed.set()

    async def next(self, test: Callable[[Any], Any], within: float = PATIENCE_S) -> Any:
        try:
            async with asyncio.timeout(within):
                while True:
                    for n in range(self.at, len(self.seen)):
                        if test(self.seen[n]):
                            self.at = n + 1
                            return self.seen[n]
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            last = " ".join(str(getattr(e, "type", type(e).__name__)) for e in self.seen[-12:])
            raise AssertionError(f"nothing in {within} s; last: {last}") from None

    async def type(self, kind: str, within: float = PATIENCE_S) -> Any:
        return await self.next(lambda e: getattr(e, "type", None) == kind, within)


async def report(checks: dict[str, Callable[[], Awaitable[Any]]]) -> None:
    """Run the checks in order; a failed one is reported and the next still tried. Ends the process."""
    failed = 0
    for name, check in checks.items():
        began = time.monotonic()
        try:
            told, ok = str(await check() or "")[:160], True
        except Exception:
            told, ok = traceback.format_exc()[-900:], False
            failed += 1
        line = {"check": name, "ok": ok, "ms": round((time.monotonic() - began) * 1000), "detail": told}
        print(json.dumps(line), flush=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # some clients keep threads that never end
