"""A caller that also keeps what its loudspeaker would have done."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from antiphon.codecs.pcm import from_s16
from benchmarks.turns.client import AUDIBLE, RATE, Caller, Turn

BUFFER_S = 0.1
"""A simulated player starts so long after its first piece of audio."""


@dataclass
class Player:
    """Plays each answer from ``BUFFER_S`` after its first piece; ``underruns`` counts the times it ran dry before the end."""

    underruns: int = 0
    answers: int = 0
    _plays_until: float | None = None

    def hear(self, seconds: float, now: float) -> None:
        if self._plays_until is None:
            self.answers += 1
            self._plays_until = now + BUFFER_S
        elif now > self._plays_until:
            self.underruns += 1
            self._plays_until = now
        self._plays_until += seconds

    def end(self) -> None:
        self._plays_until = None


@dataclass
class Listener(Caller):
    """A ``Caller`` with a player."""

    player: Player = field(default_factory=Player)

    async def listen(self) -> None:
        async for message in self.socket:
            now = time.monotonic()
            event = json.loads(message)
            kind = event["type"]
            if kind == "response.output_audio.delta":
                pcm = from_s16(base64.b64decode(event["delta"]))
                self.player.hear(len(pcm) / RATE, now)
                if np.any(np.abs(pcm) > AUDIBLE):
                    self._audible.append(now)
            elif kind == "response.output_audio.done":
                self.player.end()
            self._events.append((kind, now))


@dataclass
class Talked:
    """One session's outcome."""

    turns: list[Turn]
    player: Player


async def talk(url: str, speech: NDArray[np.float32], count: int, silence_ms: int, delay_s: float, patience_s: float) -> Talked:
    """One session that begins after ``delay_s``; the first of ``count`` + 1 turns is dropped."""
    await asyncio.sleep(delay_s)
    async with connect(url, max_size=None, compression=None, open_timeout=60, ping_timeout=120) as socket:
        detection = {"type": "server_vad", "silence_duration_ms": silence_ms}
        caller = Listener(socket, detection, patience_s)
        await caller.begin()
        listening = asyncio.create_task(caller.listen())
        try:
            done = [await caller.turn(speech) for _ in range(count + 1)]
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    return Talked(done[1:], caller.player)
