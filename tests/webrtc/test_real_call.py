"""aiortc's own client, a bad line and the real CPU voice: a human's question, the answer, and its echo in the microphone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from antiphon.cli import backend, serve
from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.settings import ServerSettings
from tests.webrtc.calling import FRAME, RATE, Running, calling, loud_seconds, serving
from tests.webrtc.line import line

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

BAD = {"loss": 0.02, "jitter_s": 0.06}
ECHO_FRAMES = 4
"""80 ms later."""
ECHO_LEVEL = 0.1
"""-20 dB."""


@asynccontextmanager
async def voice() -> AsyncIterator[Running]:
    """The doors and the ears as ``antiphon serve`` has them, on this loop: an echo is late by the room, and by nothing else."""
    from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

    settings = ServerSettings()
    try:
        for name in (*DEFAULT_WEIGHTS.values(), "silero-vad"):
            weights.path(name)
    except WeightError as error:
        pytest.skip(str(error))
    with backend.ears(settings) as open_ear:
        client, features = backend.client_factory(settings)(), serve.features(settings)
        async with serving(client, features=features, open_ear=open_ear) as running:
            yield running


async def test_a_question_is_answered_and_the_echo_of_it_interrupts_nothing(shared_audio: Path) -> None:
    samples, rate = soundfile.read(shared_audio / "dog-or-cat.mp3", dtype="float32", always_2d=True)
    question = soxr.resample(samples.mean(1), rate, RATE)
    async with voice() as running, line(**BAD) as way, calling(running, line=way) as caller:
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
