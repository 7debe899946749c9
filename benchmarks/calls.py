"""WebRTC beside WebSocket: voice-to-voice of the same spoken turn in one run, and what a call costs in CPU.

python -m benchmarks.calls [--turns 10] [--calls 8] [--seconds 10]     on stub models with fixed delays: the doors' own share

Voice-to-voice is taken in the client, from decoded sound: from the moment the last voiced sample is sent to the first loud
sample that comes back. Over WebRTC that includes Opus, RTP and the caller's jitter buffer (80 ms of it in aiortc's client).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import resource
import statistics
import time
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from antiphon.session.features import Features
from tests.realtime.stubs import Script, StubClient
from tests.webrtc.calling import Caller, Running, serving

SPEECH_S, SILENCE_MS = 0.8, 500
SESSION = {
    "type": "realtime",
    "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": SILENCE_MS}}},
}


def tone(rate: int, seconds: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


async def websocket_turn(running: Running) -> float:
    """Milliseconds from the last voiced sample sent to the first loud one received."""
    async with connect(running.ws + "?model=stub", max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": SESSION}))
        speech = (np.concatenate((tone(24_000, SPEECH_S), np.zeros(3 * 24_000))) * 32767).astype("<i2")
        ended = 0.0

        async def speak() -> None:
            nonlocal ended
            began = time.monotonic()
            for n in range(0, len(speech), 480):
                audio = base64.b64encode(speech[n : n + 480].tobytes()).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
                if n < SPEECH_S * 24_000 <= n + 480:
                    ended = time.monotonic()
                await asyncio.sleep(max(0.0, began + (n + 480) / 24_000 - time.monotonic()))

        speaking = asyncio.create_task(speak())
        try:
            async for message in socket:
                if json.loads(message)["type"] == "response.output_audio.delta":
                    return (time.monotonic() - ended) * 1000
        finally:
            speaking.cancel()
    raise RuntimeError("no answer")


async def webrtc_turn(running: Running) -> float:
    caller = Caller(running)
    try:
        await caller.accept(await caller.post())
        await caller.until("session.created")
        caller.send("session.update", session=SESSION)
        await caller.until("session.updated")
        caller.microphone.say(tone(48_000, SPEECH_S))
        while not caller.microphone.silent:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        ended = time.monotonic()
        frames = len(caller.frames)
        while True:
            await asyncio.sleep(0.002)
            if any(np.abs(frame).max() > 1000 / 32768 for frame in caller.frames[frames:]):
                return (time.monotonic() - ended) * 1000
    finally:
        await caller.close()


async def cpu_per_call(running: Running, calls: int, seconds: float) -> float:
    """Per cent of one core for server and caller together: both are the same library, the server's part is about half."""
    callers = [Caller(running) for _ in range(calls)]
    for caller in callers:
        await caller.accept(await caller.post())
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for caller in callers:
        await caller.close()
    return 100 * spent / (time.monotonic() - began) / calls


async def main(turns: int, calls: int, seconds: float) -> None:
    script = Script(asr_s=0.05, first_token_s=0.06, token_s=0.01, first_audio_s=0.08, audio_s=1.0)
    figures: dict[str, list[float]] = {"websocket": [], "webrtc": []}
    async with serving(StubClient(script), features=Features()) as running:
        for _ in range(turns):  # turn about, so that a busy machine is busy for both
            figures["websocket"].append(await websocket_turn(running))
            figures["webrtc"].append(await webrtc_turn(running))
        told: dict[str, Any] = {name: round(statistics.median(values)) for name, values in figures.items()}
        told["difference"] = told["webrtc"] - told["websocket"]
        told["cpu_percent_per_call_both_ends"] = round(await cpu_per_call(running, calls, seconds), 1)
    print(json.dumps(told))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    asyncio.run(main(options.turns, options.calls, options.seconds))
