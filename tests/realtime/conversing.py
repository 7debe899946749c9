"""A running server and a bare client for the tests of the realtime doors: real sockets, no protocol library on top."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from antiphon.realtime import client_secrets, seeing, sockets, websocket
from antiphon.realtime.doors import Doors, OpenEar
from antiphon.realtime.load import Bounds, Load
from antiphon.realtime.settings import Settings
from antiphon.realtime.state import Client, State
from antiphon.session.features import Features
from tests.realtime.stubs import StubClient, StubEar

AUDIO_DELTAS = ("response.output_audio.delta", "response.audio.delta")


@dataclass
class Running:
    """A server in this loop."""

    port: int
    doors: Doors
    client: Client
    server: sockets.Server

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(
    client: Client | None = None,
    settings: Settings | None = None,
    features: Features | None = None,
    open_ear: OpenEar = StubEar,
    drain_s: float = 2.0,
    port: int = 0,
    load: Load | None = None,
) -> AsyncIterator[Running]:
    """What a busy server leaves out, this one does not unless ``load`` is given."""
    graph = client or StubClient()
    state = State(settings or Settings(), lambda: graph)
    await state.start()
    doors = Doors(state, open_ear, features, drain_s=drain_s)
    doors.load = Load(Bounds(math.inf, math.inf)) if load is None else load
    app = Starlette(routes=[*websocket.routes(doors), *client_secrets.routes(doors), *seeing.routes(doors)])
    config = sockets.config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    server = sockets.Server(config, doors.drain)
    task = asyncio.create_task(server._serve())
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has a flag, no event
            await asyncio.sleep(0.01)
        yield Running(server.servers[0].sockets[0].getsockname()[1], doors, graph, server)
    finally:
        server.should_exit = True
        await task
        await state.stop()


class Talk:
    """A client that keeps everything it got, with the time it came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self._changed = asyncio.Event()
        self._read_to = 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionClosed):
            async for frame in self.socket:
                assert isinstance(frame, str), "frames to clients are text"
                event = json.loads(frame)
                event["_at"] = loop.time()
                event["_bytes"] = len(frame)
                self.events.append(event)
                self._changed.set()
        self.closed = (self.socket.close_code or 0, self.socket.close_reason or "")
        self._changed.set()

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str, *, within: float = 10.0, **fields: Any) -> dict[str, Any]:
        """The next event of this type whose fields are these; events before it are passed over."""
        async with asyncio.timeout(within):
            while True:
                while self._read_to < len(self.events):
                    event = self.events[self._read_to]
                    self._read_to += 1
                    if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                        return event
                    if event["type"] == "error" and kind != "error":
                        raise AssertionError(event)
                if self.closed is not None:
                    raise AssertionError(f"closed while waiting for {kind}: {self.closed}")
                self._changed.clear()
                await self._changed.wait()

    async def close_code(self, within: float = 10.0) -> int:
        async with asyncio.timeout(within):
            await self._task
        assert self.closed is not None
        return self.closed[0]

    def types(self) -> list[str]:
        return [e["type"] for e in self.events]

    async def speak(self, samples: NDArray[np.float32], pace: float = 0.0) -> None:
        """24 kHz float32 in appends of 20 ms; ``pace`` 1.0 is real time."""
        pcm = (samples * 32767).astype("<i2")
        for start in range(0, len(pcm), 480):
            data = pcm[start : start + 480].tobytes()
            await self.send("input_audio_buffer.append", audio=base64.b64encode(data).decode())
            if pace:
                await asyncio.sleep(0.02 * pace)

    async def say_hello(self, **session: Any) -> dict[str, Any]:
        """session.created and one session.update; what the server says to it."""
        await self.until("session.created")
        await self.send("session.update", session={"type": "realtime", **session})
        return (await self.until("session.updated"))["session"]

    async def ask(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send("response.create")


@asynccontextmanager
async def talking(running: Running, query: str = "?model=stub", **options: Any) -> AsyncIterator[Talk]:
    async with connect(running.url + query, max_size=None, compression=None, **options) as socket:
        talk = Talk(socket)
        try:
            yield talk
        finally:
            await socket.close()  # while it is still read: a close frame waits behind all the others
            talk._task.cancel()
            await asyncio.gather(talk._task, return_exceptions=True)


def voice(seconds: float, level: float = 0.3, rate: int = 24_000) -> NDArray[np.float32]:
    """Something loud: speech to the stub ear."""
    return (level * np.sin(2 * np.pi * 220 * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def hush(seconds: float, rate: int = 24_000) -> NDArray[np.float32]:
    return np.zeros(int(rate * seconds), np.float32)


def audio_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(e["delta"], validate=True) for e in events if e["type"] in AUDIO_DELTAS)


def open_descriptors() -> int:
    import os

    return len(os.listdir("/proc/self/fd"))
