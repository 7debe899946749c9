"""Interruptions at random moments, seen from outside: what of the old answer still comes after the user has begun to speak.

A client on a real socket asks for long answers, waits a while, speaks a recording, and keeps every frame with its order.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from tests.realtime.conversing import Talk, audio_of

AT_LENGTH = "Answer at great length: at least twelve long sentences, always. Never be brief."
QUESTIONS = (
    "Tell me a long story about a lighthouse keeper.",
    "Explain in detail how bread is made.",
    "Describe a walk through a forest in autumn, step by step.",
    "What should I see in Rome in three days? Say much about each place.",
)


@dataclass(frozen=True)
class Interruption:
    """``stale``: bytes of the old answer's audio behind speech_started. ``unfinished``: the answer was still running."""

    waited_s: float
    stale: int
    unfinished: bool
    before_audio: bool
    audio_s: float
    ends: int


async def interrupt_once(
    talk: Talk, speech: NDArray[np.float32], wait_s: float, question: str, *, sounding: bool
) -> Interruption:
    """Ask, wait after response.created (``sounding``: after the first audio), speak; then look at what came."""
    start = len(talk.events)
    await talk.ask(question)
    created = await talk.until("response.created", within=60.0)
    response_id = created["response"]["id"]
    if sounding:
        await talk.until("response.output_audio.delta", within=60.0)
    await asyncio.sleep(wait_s)
    speaking = asyncio.create_task(talk.speak(speech, pace=0.25))
    started = await talk.until("input_audio_buffer.speech_started", within=60.0)
    await speaking
    await talk.speak(np.zeros(24_000, np.float32), pace=0.25)
    at = talk.events.index(started)
    answer = await talk.until("response.created", within=60.0)  # the one to the interruption
    await talk.send("response.cancel", response_id=answer["response"]["id"])
    await _ended(talk, answer["response"]["id"])
    events = talk.events[start:]
    old = [e for e in events if e.get("response_id") == response_id]
    done = [e for e in events if e["type"] == "response.done" and e["response"]["id"] == response_id]
    stale = audio_of([e for e in talk.events[at:] if e.get("response_id") == response_id])
    early = [e for e in old if e["type"] == "response.output_audio.delta" and talk.events.index(e) < at]
    return Interruption(
        waited_s=wait_s,
        stale=len(stale),
        unfinished=done[0]["response"]["status"] == "cancelled",
        before_audio=not early,
        audio_s=len(audio_of(early)) / 48_000,
        ends=len(done),
    )


async def _ended(talk: Talk, response_id: str) -> None:
    """Until that response is done, whether the cancel was in time or not."""
    async with asyncio.timeout(60):
        while not any(e["type"] == "response.done" and e["response"]["id"] == response_id for e in talk.events):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    talk._read_to = len(talk.events)


async def interrupt(url: str, speech: NDArray[np.float32], count: int, seed: int = 1) -> list[Interruption]:
    """``count`` interruptions in one session: two in five before the first audio, the others up to 1 s behind it."""
    rng = random.Random(seed)
    found = []
    async with connect(url + "?model=any", max_size=None, compression=None) as socket:
        talk = Talk(socket)
        detection = {"type": "server_vad", "silence_duration_ms": 300}
        await talk.say_hello(audio={"input": {"turn_detection": detection}}, instructions=AT_LENGTH)
        for n in range(count):
            sounding = n % 5 > 1
            wait = rng.uniform(0.0, 1.0 if sounding else 0.2)
            found.append(await interrupt_once(talk, speech, wait, rng.choice(QUESTIONS), sounding=sounding))
        await socket.close()
        talk._task.cancel()
        await asyncio.gather(talk._task, return_exceptions=True)
    return found
