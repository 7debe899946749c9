"""WebRTC beside WebSocket: voice-to-voice of the same spoken turn, turn about against one server, and what a call costs.

python -m benchmarks.turns --transport webrtc [--real] [--turns N]     (or python -m benchmarks.calls)

Both callers count alike (see ``benchmarks.turns.client``): from the last voiced sample, at that sample, to the first loud one.
Over WebRTC that moment is told twice: when the packet with it arrives, which is the server's share, its codec's and the
line's; and when aiortc's client gives it out, which holds four packets, 80 ms, before it plays the first. A browser holds
what its line asks for. CPU is the server's process alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
from av import AudioFrame, CodecContext
from av.audio.codeccontext import AudioCodecContext
from av.packet import Packet
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from antiphon.codecs.resample import FirResampler
from benchmarks.machine import table
from benchmarks.turns import client
from tests.webrtc.calling import RATE, Caller, Running

HEAD = ["way", "median ms", "min-p95", "n", "beside WebSocket"]
ROWS = ("WebSocket", "WebRTC, on arrival", "WebRTC, as aiortc plays it")
JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
WITHIN_S = 15.0


class Arriving:
    """Looks at every packet before the caller's own jitter buffer gets it. ``loud``: when sound has come."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        codec = CodecContext.create("libopus", "r")
        assert isinstance(codec, AudioCodecContext)
        codec.sample_rate, codec.layout = RATE, "mono"
        self._codec = codec
        self.loud: list[float] = []

    def add(self, packet: Any) -> Any:
        now = time.monotonic()
        for frame in self._codec.decode(Packet(packet._data)):
            if np.abs(mono(frame)).max() > client.AUDIBLE:
                self.loud.append(now)
        return self._inner.add(packet)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def mono(frame: AudioFrame) -> NDArray[np.float32]:
    """A decoded frame as float32 in [-1, 1)."""
    samples = frame.to_ndarray().reshape(-1)
    return samples.astype(np.float32) / np.float32(32768 if samples.dtype == np.int16 else 1)


@contextlib.asynccontextmanager
async def call(url: str, turn_detection: dict[str, Any]) -> AsyncIterator[tuple[Caller, Arriving]]:
    """A call by aiortc's own client."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        caller = Caller(Running(0, None, None, http))  # type: ignore[arg-type]
        receiver = caller.pc.getTransceivers()[0].receiver
        arriving = Arriving(getattr(receiver, JITTER_BUFFER))
        setattr(receiver, JITTER_BUFFER, arriving)
        try:
            await caller.accept(await caller.post("/v1/realtime/calls"))
            await caller.until("session.created")
            audio = {"input": {"turn_detection": turn_detection, "transcription": {"model": "whisper-1"}}}
            caller.send("session.update", session={"type": "realtime", "audio": audio})
            await caller.until("session.updated")
            yield caller, arriving
        finally:
            await http.post(f"{caller.location}/hangup")
            await caller.close()


async def called_turn(caller: Caller, arriving: Arriving, speech: NDArray[np.float32]) -> tuple[float, float] | None:
    """(on arrival, as played) in ms after the last voiced sample; ``speech`` at 48 kHz. None: nothing was heard."""
    arriving.loud.clear()
    played = len(caller.frames)
    last_voiced = int(np.flatnonzero(np.abs(speech) > client.VOICED)[-1])
    caller.microphone.say(speech)
    while caller.microphone.spoke_at is None or not caller.microphone.silent:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    end = caller.microphone.spoke_at + last_voiced / RATE
    given = None
    while time.monotonic() < end + WITHIN_S and given is None:
        await asyncio.sleep(0.002)
        for frame in caller.frames[played:]:
            played += 1
            if np.abs(frame).max() > client.AUDIBLE and time.monotonic() > end:
                given = time.monotonic()
                break
    if given is None:
        return None
    await caller.until("output_audio_buffer.stopped", within=60)
    await asyncio.sleep(1.0)
    return (min(t for t in arriving.loud if t >= end) - end) * 1000, (given - end) * 1000


async def beside_websocket(url: str, speech: NDArray[np.float32], turn_detection: dict[str, Any], turns: int) -> str:
    """A table of three rows; ``speech`` at 24 kHz. The first turn of each is not counted."""
    at_48k = FirResampler(client.RATE, RATE).feed(speech)
    done: dict[str, list[float]] = {name: [] for name in ROWS}
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=benchmark"
    async with (
        connect(address, max_size=None, compression=None) as socket,
        call(url, turn_detection) as (caller, arriving),
    ):
        other = client.Caller(socket, turn_detection)
        await other.begin()
        listening = asyncio.create_task(other.listen())
        for n in range(turns + 1):
            plain = (await other.turn(speech)).voice_to_voice
            called = await called_turn(caller, arriving, at_48k)
            if n and plain is not None and called is not None:
                for name, value in zip(ROWS, (plain, *called), strict=True):
                    done[name].append(value)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    rows = []
    for name, values in done.items():
        ordered = sorted(values)
        more = statistics.median(ordered) - statistics.median(done["WebSocket"])
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        rows.append([name, f"{statistics.median(ordered):.0f}", f"{ordered[0]:.0f}-{p95:.0f}", len(ordered), f"{more:+.0f}"])
    return table(HEAD, rows)


@contextlib.asynccontextmanager
async def socket_session(url: str) -> AsyncIterator[None]:
    """A WebSocket session whose microphone sends silence."""
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=benchmark"
    async with connect(address, max_size=None, compression=None) as socket:

        async def speak() -> None:
            frame = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(960)).decode()})
            at = time.monotonic()
            while True:
                at += 0.02
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                await socket.send(frame)

        async def read() -> None:
            async for _ in socket:
                pass

        tasks = [asyncio.create_task(speak()), asyncio.create_task(read())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def cost(url: str, count: int, seconds: float) -> str:
    """The server's CPU for each of ``count`` open conversations, over what it takes with none."""
    from benchmarks.sessions.__main__ import Process, listening_pid

    server = Process(listening_pid(int(url.rsplit(":", 1)[1].strip("/"))))

    async def spent() -> float:
        before, began = server.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        return 100 * (server.cpu_s() - before) / (time.monotonic() - began)

    ways = {"WebSocket": socket_session, "WebRTC": lambda url: call(url, {"type": "server_vad"})}
    rows = []
    alone = await spent()
    for name, way in ways.items():
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(count):
                await stack.enter_async_context(way(url))  # type: ignore[arg-type]
            await asyncio.sleep(1.0)
            each = (await spent() - alone) / count
        rows.append([name, count, f"{each:.1f} %", f"{100 / each:.0f}"])
    return table(["microphone open, nobody speaks", "conversations", "of a core each", "a core carries"], rows)


async def main(turns: int, calls: int, seconds: float, real: bool) -> None:
    from antiphon.cli.demo import QUESTION
    from antiphon.codecs.media import decode
    from benchmarks.machine import machine
    from benchmarks.turns.__main__ import REAL_SILENCE_MS, STUB_SILENCE_MS, process, real_server, server_vad, stub_server

    speech = decode(QUESTION.read_bytes(), client.RATE)
    print(machine())
    with process(stub_server([]), "ready") as url:
        print(f"\non stubs, silence {STUB_SILENCE_MS} ms")
        print(await beside_websocket(url, speech, server_vad(STUB_SILENCE_MS), turns))
        print()
        print(await cost(url, calls, seconds))
    if real:
        with process(real_server([]), "Antiphon is ready at") as url:
            print(f"\non the CPU voice, silence {REAL_SILENCE_MS} ms")
            print(await beside_websocket(url, speech, server_vad(REAL_SILENCE_MS), turns))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--real", action="store_true", help="the CPU voice as well")
    options = parser.parse_args()
    asyncio.run(main(options.turns, options.calls, options.seconds, options.real))
