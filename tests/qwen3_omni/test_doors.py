"""Through the doors: the official openai client, unmodified, on the tiny model. Chat with image and audio; a spoken turn."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import soxr

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni import params, talker
from antiphon.pipelines.qwen3_omni.params import Talking
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.qwen3_omni.cases import AUDIO, IMAGE, tone
from tests.qwen3_omni.oracle import TALKER_TOKENS, THINKER_TOKENS, Answer, Oracle
from tests.realtime import conversing
from tests.realtime.rest.conftest import serving

openai = pytest.importorskip("openai")

Expected = Callable[[str], Answer]
GREEDY = {"talker": {"temperature": 0.0, "max_tokens": TALKER_TOKENS}}


@asynccontextmanager
async def chatting(folder: str) -> AsyncIterator[Any]:
    async with serving(Client(LocalRuntime(build(folder))), Settings()) as server:
        while not server.state.ready:  # noqa: ASYNC110 - the state has a flag, no event
            await asyncio.sleep(0.05)
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0) as ai:
            yield ai


async def test_chat_with_image_and_audio_in_and_audio_out(folder: str, expected: Expected, oracle: Oracle) -> None:
    answer = expected("audio and image")
    content: Any = [
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(AUDIO.data).decode(), "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(IMAGE.data).decode()}},
        {"type": "text", "text": "What?"},
    ]
    async with chatting(folder) as ai:
        stream = await ai.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": content}],
            modalities=["text", "audio"],
            audio={"voice": "ethan", "format": "pcm16"},
            max_tokens=THINKER_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"stage_params": GREEDY},
        )
        said, sound, usage = "", b"", None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                audio = getattr(choice.delta, "audio", None)
                said += getattr(audio, "transcript", None) or ""
                sound += base64.b64decode(getattr(audio, "data", None) or "")
    assert said == oracle.tok.decode(answer.tokens)
    wave = np.frombuffer(sound, "<i2") / 32768
    assert len(wave) == len(answer.wave)
    # 16 bits of the same samples.
    assert np.abs(wave - np.clip(answer.wave, -1, 32767 / 32768)).max() < 2 / 32768
    assert usage is not None and usage.prompt_tokens_details.audio_tokens == 26


async def test_an_unknown_voice_is_said(folder: str) -> None:
    async with chatting(folder) as ai:
        with pytest.raises(openai.BadRequestError, match="nobody"):
            await ai.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "Hi"}], modalities=["text", "audio"],
                audio={"voice": "nobody", "format": "wav"},
            )  # fmt: skip


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A realtime session names no seed, and the tiny talker draws the end as its first frame once in seventy answers."""

    def talker_params(request: GenerateRequest) -> Talking:
        talking = params.talker_params(request)
        return replace(talking, sampling=replace(talking.sampling, seed=3))

    monkeypatch.setattr(talker, "talker_params", talker_params)


@pytest.mark.usefixtures("seeded")
async def test_a_spoken_realtime_turn(folder: str) -> None:
    """The user's speech goes in as 24 kHz audio, an answer comes out aloud; then one more turn over its history."""
    speech = soxr.resample(tone(), 16000, 24000)
    pcm = (speech * 32767).astype("<i2").tobytes()
    async with (
        conversing.serving(Client(LocalRuntime(build(folder)))) as running,
        openai.AsyncOpenAI(base_url=f"{running.http}/v1", api_key="x") as ai,
        ai.realtime.connect(model="tiny") as rt,
    ):
        await rt.session.update(
            session={
                "type": "realtime",
                "output_modalities": ["audio"],
                "max_output_tokens": 12,
                "instructions": "You are Qwen.",
                "audio": {"input": {"turn_detection": None}, "output": {"voice": "ethan"}},
            }
        )
        for _ in range(2):
            for at in range(0, len(pcm), 9600):
                await rt.input_audio_buffer.append(audio=base64.b64encode(pcm[at : at + 9600]).decode())
            await rt.input_audio_buffer.commit()
            await rt.response.create()
            sound, text, status = b"", "", ""
            async with asyncio.timeout(60):
                async for event in rt:
                    assert event.type != "error", event
                    if event.type == "response.output_audio.delta":
                        sound += base64.b64decode(event.delta)
                    elif event.type == "response.output_audio_transcript.delta":
                        text += event.delta
                    elif event.type == "response.done":
                        status = event.response.status
                        break
            assert status in ("completed", "incomplete") and text
            assert len(sound) % 2 == 0 and len(sound) >= 2 * (1920 - 555)
