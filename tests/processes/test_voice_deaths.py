"""The CPU voice behind the realtime door, a process killed in mid-answer: one session loses its answer and may ask again,
the others hear theirs without a gap. With every stage apart, and with the models together in two replicas."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import soundfile
import soxr

import antiphon.cli
from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.handle import Handle
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from tests.processes.playing import AUDIO, LATE_S, late_by
from tests.realtime.conversing import Running, Talk, audio_of, serving, talking
from tests.realtime.interrupting import AT_LENGTH
from tests.realtime.rest.conftest import until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

BUFFER_S = 0.5
"""What the simulated player waits for before it starts, as players do."""
PASSED = ("preprocessing", "transcriber", "thinker", "decode")
"""Stages that have done all they can for an answer while most of it is still to be spoken."""
SPEAKING = ("segmenter", "talker", "code2wav")
STORY = "Tell me a long story about a lighthouse keeper."
LONG, SHORT = 150, 10
"""Tokens of an answer: most of a minute of speech, and a few words."""


def runtime(split: str, placement: Placement | None = None) -> ProcessRuntime:
    pytest.importorskip("cyllama", reason="the extra `local` is not installed")
    from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

    try:
        for name in DEFAULT_WEIGHTS.values():
            weights.path(name)
    except WeightError as error:
        pytest.skip(str(error))
    cut = {"builder": "antiphon.pipelines.local.pipeline:build", "args": {}, "split": split}
    return ProcessRuntime(PipelineSpec("antiphon.pipelines.splits:build", cut), placement)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def apart() -> AsyncIterator[tuple[ProcessRuntime, Running]]:
    backend = runtime("apart")
    backend._crew.pause = lambda seconds: asyncio.sleep(0)  # many deaths in a minute: back-off is not the subject
    async with serving(Client(backend)) as running:
        yield backend, running


def spoken_question() -> str:
    """Base64 of PCM16 at 24 kHz."""
    samples, rate = soundfile.read(Path(antiphon.cli.__file__).parent / "question.wav", dtype="float32")
    pcm = (soxr.resample(samples, rate, 24_000) * 32767).clip(-32768, 32767).astype("<i2")
    return base64.b64encode(pcm.tobytes()).decode()


async def ask(talk: Talk, text: str, tokens: int, *, aloud: bool = False, modality: str = "audio") -> str:
    """Ask, in writing or ``aloud``; the response's id."""
    part = {"type": "input_audio", "audio": spoken_question()} if aloud else {"type": "input_text", "text": text}
    await talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": [part]})
    await talk.send("response.create", response={"max_output_tokens": tokens, "output_modalities": [modality]})
    return str((await talk.until("response.created", within=60))["response"]["id"])


def running_now(backend: ProcessRuntime, *others: Handle) -> list[Handle]:
    return [h for h in backend.coordinator.live.values() if h.end is None and h not in others]


def kill(backend: ProcessRuntime, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
    os.kill(int(backend.health()["processes"][name]["place"].split()[1]), sign)


async def failed(talk: Talk, response_id: str) -> None:
    done = (await talk.until("response.done", within=20))["response"]
    assert done["id"] == response_id and done["status"] == "failed"
    error = done["status_details"]["error"]
    assert error["code"] == "server_error" and "retry" in error["message"], error


async def answers_again(talk: Talk, modality: str = "audio") -> None:
    """The same session, as soon as it is served: until then it is told by name that it is not."""
    deadline = time.monotonic() + 60
    while True:
        await ask(talk, "Say hello.", SHORT, modality=modality)
        done = (await talk.until("response.done", within=60))["response"]
        if done["status"] in ("completed", "incomplete"):
            return
        assert done["status_details"]["error"]["code"] in ("server_busy", "server_error"), done
        assert time.monotonic() < deadline, done
        await asyncio.sleep(0.1)


async def lose(backend: ProcessRuntime, talk: Talk, stage: str, *others: Handle) -> None:
    """Ask for a long answer and kill the stage's process while the answer is inside it."""
    name = f"{stage}.0"
    if stage == "preprocessing":  # it takes a millisecond: held, it is caught in the act
        kill(backend, name, signal.SIGSTOP)
    response_id = await ask(talk, STORY, LONG, aloud=stage == "transcriber")
    await until(lambda: any(h.started for h in running_now(backend, *others)), 20)
    match stage:
        case "thinker" | "decode":
            await talk.until("response.output_audio_transcript.delta", within=60)
        case "segmenter" | "talker" | "code2wav":
            await talk.until(AUDIO, within=60)
        case _:
            await asyncio.sleep(0.03)
    kill(backend, name)
    await failed(talk, response_id)


@pytest.mark.parametrize("stage", PASSED)
async def test_a_stages_death_passes_by_an_answer_that_has_left_it(apart: tuple[ProcessRuntime, Running], stage: str) -> None:
    """A long answer is heard through the death: all it needs is already in the voice."""
    backend, running = apart
    async with talking(running) as loser, talking(running) as listener:
        for talk in (loser, listener):
            await talk.say_hello(output_modalities=["audio"], instructions=AT_LENGTH)
        response_id = await ask(listener, STORY, LONG)
        (story,) = running_now(backend)
        await until(lambda: story.left == {"audio"} and story.first_span_at is not None, 60)
        await lose(backend, loser, stage, story)
        assert story.end is None, "it is still being spoken, or nothing is shown"
        listener._read_to = len(listener.events)
        await listener.until(AUDIO, within=30, response_id=response_id)
        assert late_by(listener.events, response_id, BUFFER_S) < LATE_S
        assert not [e for e in listener.events if e["type"] in ("error", "response.done")]
        await listener.send("response.cancel")
        await listener.until("response.done")
        await answers_again(loser, "text")
        assert backend.health()["processes"][f"{stage}.0"]["restarts"] == 1


@pytest.mark.parametrize("stage", SPEAKING)
async def test_a_death_in_the_voice_passes_by_what_has_been_made(apart: tuple[ProcessRuntime, Running], stage: str) -> None:
    """What is made and not yet heard is the door's: a listener hears it to its end."""
    backend, running = apart
    async with talking(running) as loser, talking(running) as listener:
        for talk in (loser, listener):
            await talk.say_hello(output_modalities=["audio"], instructions=AT_LENGTH)
        response_id = await ask(listener, "Say hello.", SHORT)
        (hello,) = running_now(backend)
        await until(lambda: hello.end is not None, 60)
        await lose(backend, loser, stage)
        done = (await listener.until("response.done", within=20))["response"]
        assert done["status"] in ("completed", "incomplete")
        assert late_by(listener.events, response_id, BUFFER_S) < LATE_S
        assert len(audio_of(listener.events)) == round(hello.span_ms * 48), "not a sample is missing"
        await answers_again(loser)


async def test_a_replicas_death_is_its_own_sessions_affair() -> None:
    """The models together, twice: whoever is in the other replica hears nothing of it, in the middle of an answer."""
    backend = runtime("split", Placement(default=ProcessOptions(replicas=2)))
    async with serving(Client(backend)) as running, talking(running) as loser, talking(running) as listener:
        asked: dict[Talk, str] = {}
        at: dict[Talk, str] = {}
        for talk in (loser, listener):
            await talk.say_hello(output_modalities=["audio"], instructions=AT_LENGTH)
            before = running_now(backend)
            asked[talk] = await ask(talk, STORY, LONG)
            (handle,) = running_now(backend, *before)
            at[talk] = handle.places["model"]
            await talk.until(AUDIO, within=60)
        assert sorted(at.values()) == ["model.0", "model.1"], "a new one goes to the least loaded"
        kill(backend, at[loser])
        await failed(loser, asked[loser])
        assert set(backend.health()["lanes"].values()) == {"ready"}, "one that serves is enough"
        lost_at = asyncio.get_running_loop().time()
        handles: Any = running_now(backend)
        assert [h.places["model"] for h in handles] == [at[listener]], "its answer is still being made"
        await answers_again(loser)
        while listener.events[-1]["_at"] < lost_at + 4.0:  # past all that had been sent ahead
            await listener.until(AUDIO, within=30, response_id=asked[listener])
        assert late_by(listener.events, asked[listener], BUFFER_S) < LATE_S
        await listener.send("response.cancel")
        await listener.until("response.done")
        await until(lambda: backend.health()["processes"][at[loser]]["state"] == "ready", 60)
