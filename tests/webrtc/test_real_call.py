"""aiortc's own client, a bad line and the real CPU voice: a human's question, the answer, and its echo in the microphone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import soxr

from tests.clients import serving
from tests.webrtc.calling import FRAME, RATE, Caller, Running, loud_seconds
from tests.webrtc.line import line

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BAD = {"loss": 0.02, "jitter_s": 0.06}
ECHO_FRAMES = 4
"""80 ms later."""
ECHO_LEVEL = 0.1
"""-20 dB."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    try:
        with serving.server(serving.REAL) as started:
            yield started
    except serving.NotStarted as error:
        pytest.skip(f"the CPU voice does not start here: {error}")


async def test_a_question_is_answered_and_the_echo_of_it_interrupts_nothing(port: int, shared_audio: Path) -> None:
    samples, rate = soundfile.read(shared_audio / "dog-or-cat.mp3", dtype="float32", always_2d=True)
    question = soxr.resample(samples.mean(1), rate, RATE)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http, line(**BAD) as way:
        caller = Caller(Running(port, None, None, http), line=way)  # type: ignore[arg-type]
        await caller.accept(await caller.post())
        await caller.until("session.created")
        transcription = {"transcription": {"model": "whisper-1"}}
        session = {"type": "realtime", "instructions": "Answer in two sentences.", "audio": {"input": transcription}}
        caller.send("session.update", session=session)
        caller.microphone.say(question)
        said = await caller.until("conversation.item.input_audio_transcription.completed", within=120)
        assert re.search("dog|cat", said["transcript"], re.IGNORECASE)

        async def echo() -> None:
            """A loudspeaker in the same room."""
            told = len(caller.frames)
            while True:
                while told < len(caller.frames) - ECHO_FRAMES:
                    caller.microphone.say(caller.frames[told][:FRAME] * np.float32(ECHO_LEVEL))
                    told += 1
                await asyncio.sleep(0.01)

        echoing = asyncio.create_task(echo())
        try:
            await caller.until("output_audio_buffer.stopped", within=180)
        finally:
            echoing.cancel()
        assert caller.types().count("input_audio_buffer.speech_started") == 1
        assert "output_audio_buffer.cleared" not in caller.types()
        done = next(e for e in caller.events if e["type"] == "response.done")
        assert done["response"]["status"] == "completed"
        assert loud_seconds(caller.heard) > 0.5
        assert way.lost > 5 and way.overtaken > 50
        await http.post(f"{caller.location}/hangup")
        await caller.close()
