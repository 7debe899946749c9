"""A caller on a real socket. Times are taken here, from samples, never from what the server says.

t0: when the frame with the last voiced sample (|x| > 300 of 32768) was sent, at that sample. t1: when the first frame with
|x| > 1000 came after t0. Audio that comes before t0 is a false start and counted apart.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from antiphon.codecs.pcm import from_s16, to_s16

RATE = 24_000
FRAME = RATE // 50
VOICED, AUDIBLE = 300 / 32768, 1000 / 32768


@dataclass
class Turn:
    """One turn: milliseconds after the last voiced sample; None when nothing came."""

    voice_to_voice: float | None = None
    false_starts: int = 0
    at: dict[str, float] = field(default_factory=dict)


@dataclass
class Caller:
    """One session. ``turn_detection`` is the session's; ``patience_s``: how long a turn may take after the speech."""

    socket: ClientConnection
    turn_detection: dict[str, Any]
    patience_s: float = 6.0
    _audible: list[float] = field(default_factory=list)
    _events: list[tuple[str, float]] = field(default_factory=list)

    async def begin(self) -> None:
        audio = {"input": {"turn_detection": self.turn_detection, "transcription": {"model": "whisper-1"}}}
        await self.socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "audio": audio}}))

    async def listen(self) -> None:
        async for message in self.socket:
            now = time.monotonic()
            event = json.loads(message)
            if event["type"] == "response.output_audio.delta":
                pcm = from_s16(base64.b64decode(event["delta"]))
                if np.any(np.abs(pcm) > AUDIBLE):
                    self._audible.append(now)
            self._events.append((event["type"], now))

    async def turn(self, speech: NDArray[np.float32]) -> Turn:
        """Speak (float32 24 kHz), then be silent until the answer has been heard."""
        self._audible.clear()
        self._events.clear()
        last_voiced = int(np.flatnonzero(np.abs(speech) > VOICED)[-1])
        began = time.monotonic()
        end = began + last_voiced / RATE
        sent = 0
        while True:
            frame = np.zeros(FRAME, np.float32)
            piece = speech[sent : sent + FRAME]
            frame[: piece.size] = piece
            await asyncio.sleep(max(0.0, began + sent / RATE - time.monotonic()))
            audio = base64.b64encode(to_s16(frame)).decode()
            await self.socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            sent += FRAME
            now = time.monotonic()
            heard = [t for t in self._audible if t >= end]
            if now > end + self.patience_s or (heard and now - self._audible[-1] > 1.0 and self._done()):
                break
        late = [t for t in self._audible if t >= end]
        first: dict[str, float] = {}
        for name, at in self._events:
            first.setdefault(name, (at - end) * 1000)
        return Turn(
            (late[0] - end) * 1000 if late else None,
            sum(1 for name, at in self._events if name == "response.created" and at < end),
            first,
        )

    def _done(self) -> bool:
        return any(name == "response.done" for name, _ in self._events)


async def turns(
    url: str, speeches: list[NDArray[np.float32]], turn_detection: dict[str, Any], *, warm_up: int = 1
) -> list[Turn]:
    """One session, a turn for each speech; the first ``warm_up`` turns are dropped."""
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=benchmark"
    async with connect(address, max_size=None, compression=None) as socket:
        caller = Caller(socket, turn_detection)
        await caller.begin()
        listening = asyncio.create_task(caller.listen())
        try:
            done = [await caller.turn(speech) for speech in speeches]
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    return done[warm_up:]
