"""The whole server, as a user starts it, on the CPU voice: one process for the doors, one for the models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.clients import serving
from tests.realtime.conversing import Talk
from tests.realtime.interrupting import interrupt

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    from antiphon.pipelines import weights
    from antiphon.pipelines.errors import WeightError
    from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

    try:
        for name in (*DEFAULT_WEIGHTS.values(), "silero-vad"):
            weights.path(name)
    except WeightError as e:
        pytest.skip(f"weights are absent: {e}")
    with serving.server(serving.REAL) as found:
        yield found


@pytest.fixture(scope="module")
def speech(port: int, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    samples, rate = soundfile.read(serving.recording(port, Path(tmp_path_factory.mktemp("said"))), dtype="float32")
    assert rate == 24_000
    return np.asarray(samples, np.float32)


async def test_nothing_of_an_answer_follows_an_interruption(port: int, speech: np.ndarray) -> None:
    found = await interrupt(f"ws://127.0.0.1:{port}/v1/realtime", speech, 6)
    assert [i.stale for i in found] == [0] * 6
    assert [i.ends for i in found] == [1] * 6
    assert sum(i.unfinished for i in found) >= 4
    assert 1 <= sum(i.before_audio for i in found) <= 3


async def test_a_spoken_question_is_heard_read_and_answered_aloud(port: int, speech: np.ndarray) -> None:
    from websockets.asyncio.client import connect

    async with connect(f"ws://127.0.0.1:{port}/v1/realtime", max_size=None, compression=None) as socket:
        talk = Talk(socket)
        listening = {"transcription": {"model": "whisper-1", "language": "en"}}
        await talk.say_hello(audio={"input": listening}, max_output_tokens=20)
        await talk.speak(speech, pace=0.5)
        await talk.speak(np.zeros(24_000, np.float32), pace=0.5)
        done = await talk.until("response.done", within=60.0)
        assert done["response"]["status"] in ("completed", "incomplete"), done["response"]
        told = [e["transcript"] for e in talk.events if e["type"].endswith("input_audio_transcription.completed")]
        assert told and "cat" in told[0].lower()
        assert done["response"]["output"][0]["content"][0]["transcript"].strip()
        await socket.close()
        await talk._task
