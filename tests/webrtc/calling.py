"""A whole server in this loop and aiortc's own client as a caller: real sockets, real DTLS, real Opus."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame
from numpy.typing import NDArray

from antiphon.realtime import sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.doors import Doors
from antiphon.realtime.settings import Settings
from antiphon.session.features import Features
from tests.realtime.stubs import StubClient, StubEar
from tests.webrtc.line import Line

RATE = 48_000
FRAME = 960
Samples = NDArray[np.float32]


@dataclass
class Running:
    """``http`` talks to it."""

    port: int
    doors: Doors
    client: Any
    http: httpx.AsyncClient

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    @property
    def calls(self) -> int:
        return len(self.doors.sessions)


@asynccontextmanager
async def serving(
    client: Any = None,
    settings: Settings | None = None,
    features: Features | None = None,
    open_ear: Any = StubEar,
    port: int = 0,
) -> AsyncIterator[Running]:
    """``create_app`` as it is served, on a stub graph unless another client is given."""
    graph = client or StubClient()
    app = create_app(settings or Settings(), lambda: graph, open_ear=open_ear, features=features or Features())
    app.state.doors._drain_s = 1.0
    config = sockets.config(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=2)
    server = sockets.Server(config, app.state.doors.drain)
    task = asyncio.create_task(server._serve())
    try:
        while not (server.started and app.state.antiphon.ready):  # noqa: ASYNC110 - flags, no events
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            yield Running(port, app.state.doors, graph, http)
    finally:
        server.should_exit = True
        await task


class Microphone(MediaStreamTrack):  # type: ignore[misc]
    """A track that says what was put into it, and silence otherwise; 48 kHz, at its pace.

    ``spoke_at``: when the first of what was said last was sent, on the loop's clock.
    """

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._said = self._beside = np.zeros(0, np.float32)
        self._at: float | None = None
        self._pts = 0
        self.spoke_at: float | None = None

    def say(self, samples: Samples) -> None:
        if self.silent:
            self.spoke_at = None
        self._said = np.concatenate((self._said, samples))

    def beside(self, samples: Samples) -> None:
        """Somebody else in the room, from now on, together with what is said."""
        self._beside = samples

    @property
    def silent(self) -> bool:
        return not len(self._said)

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        now = asyncio.get_running_loop().time()
        self._at = now if self._at is None else self._at + 0.02
        await asyncio.sleep(max(0.0, self._at - now))
        if self.spoke_at is None and len(self._said):
            self.spoke_at = self._at
        piece = np.zeros(FRAME, np.float32)
        said, self._said = self._said[:FRAME], self._said[FRAME:]
        piece[: len(said)] = said
        other, self._beside = self._beside[:FRAME], self._beside[FRAME:]
        piece[: len(other)] += other
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update((piece * 32767).astype("<i2").tobytes())
        frame.sample_rate, frame.time_base, frame.pts = RATE, Fraction(1, RATE), self._pts
        self._pts += FRAME
        return frame


class Caller:
    """Keeps the events it gets and the sound it hears. ``line``: what all its datagrams pass."""

    def __init__(
        self,
        running: Running,
        *,
        label: str = "oai-events",
        listen_only: bool = False,
        line: Line | None = None,
        bundle: RTCBundlePolicy = RTCBundlePolicy.BALANCED,
    ) -> None:
        self.running = running
        self.line = line
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=bundle))
        self.microphone = Microphone()
        self.events: list[dict[str, Any]] = []
        self.frames: list[Samples] = []
        self.location = ""
        self._changed = asyncio.Event()
        self._read_to = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._opened = asyncio.Event()
        self.pc.on("track", lambda track: self._tasks.append(asyncio.ensure_future(self._drain(track))))
        if listen_only:
            self.pc.addTransceiver("audio", direction="recvonly")
        else:
            self.pc.addTrack(self.microphone)
        self.channel = self.pc.createDataChannel(label)
        self.channel.on("message", self._told)
        self.channel.on("open", self._opened.set)

    async def offer(self) -> str:
        await self.pc.setLocalDescription(await self.pc.createOffer())
        return str(self.pc.localDescription.sdp)

    async def post(self, path: str = "/v1/realtime/calls?model=stub", **headers: str) -> httpx.Response:
        body = await self.offer()
        if self.line is not None:
            body = self.line.hidden(body)
        return await self.running.http.post(path, content=body, headers={"Content-Type": "application/sdp", **headers})

    async def accept(self, response: httpx.Response) -> None:
        """Take the server's answer and wait until events can be sent."""
        assert response.status_code == 201, response.text
        assert response.headers["content-type"].startswith("application/sdp")
        self.location = response.headers["location"]
        answer = await self.line.through(response.text) if self.line is not None else response.text
        await self.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        async with asyncio.timeout(15):
            await self._opened.wait()

    @property
    def id(self) -> str:
        return self.location.rsplit("/", 1)[-1]

    def send(self, kind: str, **fields: Any) -> None:
        self.channel.send(json.dumps({"type": kind, **fields}))

    def ask(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        self.send("response.create")

    async def until(self, kind: str, within: float = 15.0, **fields: Any) -> dict[str, Any]:
        """The next event of this type; those before it are passed over."""
        async with asyncio.timeout(within):
            while True:
                while self._read_to < len(self.events):
                    event = self.events[self._read_to]
                    self._read_to += 1
                    if event["type"] == kind and all(event.get(k) == v for k, v in fields.items()):
                        return event
                    assert event["type"] != "error" or kind == "error", event
                self._changed.clear()
                await self._changed.wait()

    def types(self) -> list[str]:
        return [e["type"] for e in self.events]

    @property
    def heard(self) -> Samples:
        """Everything the track has brought, 48 kHz mono."""
        return np.concatenate(self.frames) if self.frames else np.zeros(0, np.float32)

    async def hears(self, seconds: float) -> None:
        """Until so much more has been heard, silence too: what was on its way, or in the jitter buffer, has come."""
        more = len(self.heard) + seconds * RATE
        async with asyncio.timeout(30):
            while len(self.heard) < more:  # noqa: ASYNC110 - a track has no event for it
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.microphone.stop()
        await self.pc.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _told(self, message: Any) -> None:
        assert isinstance(message, str)
        self.events.append({**json.loads(message), "_bytes": len(message.encode())})
        self._changed.set()

    async def _drain(self, track: Any) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                self.frames.append(frame.to_ndarray().reshape(-1, 2).mean(1).astype(np.float32) / 32768)


@asynccontextmanager
async def calling(running: Running, **options: Any) -> AsyncIterator[Caller]:
    """A call that is open, after its ``session.created``."""
    caller = Caller(running, **options)
    try:
        await caller.accept(await caller.post())
        if caller.channel.label == "oai-events":
            await caller.until("session.created")
        yield caller
    finally:
        await caller.close()


def voice(seconds: float, level: float = 0.3) -> Samples:
    """Something loud: speech to the stub ear."""
    return (level * np.sin(2 * np.pi * 220 * np.arange(int(RATE * seconds)) / RATE)).astype(np.float32)


def loud_seconds(samples: Samples, level: float = 0.05) -> float:
    """How long anything sounded, in windows of 5 ms."""
    window = RATE // 200
    whole = samples[: len(samples) // window * window].reshape(-1, window)
    return float((np.abs(whole).max(1) > level).sum() * window / RATE)


async def settled(running: Running, calls: int = 0, within: float = 10.0) -> None:
    """Until the server holds so many calls, and the places of the others are free again."""
    async with asyncio.timeout(within):
        while running.calls != calls or (not calls and running.doors.state.admission.open):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
