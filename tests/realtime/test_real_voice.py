"""The whole server, as a user starts it, on the CPU voice: in one process, with the models apart, with every stage apart."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect

from tests.clients import serving
from tests.realtime.conversing import Talk
from tests.realtime.interrupting import interrupt

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["one", "split", "apart"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    from antiphon.pipelines import weights
    from antiphon.pipelines.errors import WeightError
    from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

    try:
        for name in (*DEFAULT_WEIGHTS.values(), "silero-vad"):
            weights.path(name)
    except WeightError as e:
        pytest.skip(f"weights are absent: {e}")
    with serving.started([*serving.REAL, "--processes", request.param]) as found:
        yield found


@pytest.fixture(scope="module")
def port(server: tuple[int, subprocess.Popen[str]]) -> int:
    return server[0]


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


async def test_a_spoken_turn_reads_only_what_is_new(port: int, speech: np.ndarray) -> None:
    """The talk so far, and what is read ahead while the user speaks, lie in the cache: 24 tokens of template and question
    are left, however long the talk."""
    async with connect(f"ws://127.0.0.1:{port}/v1/realtime", max_size=None, compression=None) as socket:
        talk = Talk(socket)
        await talk.say_hello(max_output_tokens=12)
        read = []
        for _ in range(3):
            await talk.speak(np.concatenate([speech, np.zeros(24_000, np.float32)]), pace=0.5)
            used = (await talk.until("response.done", within=60.0))["response"]["usage"]
            read.append(used["input_tokens"] - used["input_token_details"]["cached_tokens"])
        assert used["input_tokens"] > 80, "the talk has grown"
        assert max(read) <= 24, read
        await socket.close()
        await talk._task


async def test_sigterm_lets_an_answer_end_and_closes_with_1001(server: tuple[int, subprocess.Popen[str]]) -> None:
    """The last test here: it ends the server."""
    port, process = server
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    async with connect(url, compression=None) as idle, connect(url, compression=None) as busy:
        quiet, talk = Talk(idle), Talk(busy)
        await quiet.until("session.created")
        await talk.say_hello(output_modalities=["text"], max_output_tokens=12)
        await talk.ask("Count to five.")
        await talk.until("response.created", within=30.0)
        process.send_signal(signal.SIGTERM)
        assert await quiet.close_code(within=20.0) == 1001
        assert await talk.close_code(within=30.0) == 1001
        done = [e["response"]["status"] for e in talk.events if e["type"] == "response.done"]
        assert done and done[0] in ("completed", "incomplete")
    process.wait(30)
    assert process.returncode in (0, -signal.SIGTERM)
