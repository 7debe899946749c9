"""The declared pipelines in the graph runtime, through the client's door: what a request opens, streams and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from antiphon.pipelines import weights
from antiphon.pipelines.client import Client, Event, Generation
from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.outputs import AudioDelta, AudioResult, TextDelta, TextResult
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_equal import TOLERANCE

pytestmark = pytest.mark.asyncio(loop_scope="module")
Ask = Callable[..., GenerateRequest]
Expected = Callable[[str], Answer]


@dataclass
class Got:
    text: str = ""
    pieces: list[np.ndarray] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    ends: dict[str, Event] = field(default_factory=dict)
    marks: list[Any] = field(default_factory=list)


async def read(generation: Generation) -> Got:
    got = Got()
    async for event in generation:
        if event.last:
            got.ends[event.terminal] = event
        elif isinstance(event.data, TextDelta):
            got.text += event.data.text
            got.order.append("text")
        else:
            assert isinstance(event.data, AudioDelta)
            got.pieces.append(event.data.pcm)
            got.marks += event.data.marks
            got.order.append("audio")
    return got


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(folder: str) -> AsyncIterator[Client]:
    async with Client(LocalRuntime(build(folder))) as client:
        yield client


async def test_four_at_once_equal_generate_while_one_is_aborted(
    client: Client, ask: Ask, expected: Expected, oracle: Oracle
) -> None:
    names = ["text", "audio and image", "sampled", "video with sound"]
    going = {name: client.generate(ask(name)) for name in names}
    leaving = client.generate(ask("turns"))
    reading = {name: asyncio.ensure_future(read(generation)) for name, generation in going.items()}
    async for event in leaving:
        if event.terminal == "audio":
            leaving.abort()
            break
    for name, future in reading.items():
        got, answer = await future, expected(name)
        assert got.text == oracle.tok.decode(answer.tokens, skip_special_tokens=True)
        wave = np.concatenate(got.pieces)
        assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
        result = got.ends["audio"].data
        assert isinstance(result, AudioResult) and result.samples == len(wave)
        assert got.marks == sorted(got.marks, key=lambda m: (m.sample, m.text_offset))
        assert got.marks[-1].text_offset <= len(got.text) and got.marks[-1].sample == len(wave)
    await leaving.released()
    for generation in going.values():
        await generation.released()


async def test_in_several_processes(folder: str, ask: Ask, expected: Expected, oracle: Oracle) -> None:
    """The door with the media, the thinker and the voice in three processes; a neighbour is aborted."""
    spec = PipelineSpec("antiphon.pipelines.qwen3_omni.pipeline:build", {"folder": folder, "preset": "cpu_apart"})
    async with Client(ProcessRuntime(spec)) as client:
        names = ["chelsie", "video with sound"]
        reading = [asyncio.ensure_future(read(client.generate(ask(name)))) for name in names]
        leaving = client.generate(ask("turns"))
        async for _ in leaving:
            leaving.abort()
            break
        for name, got in zip(names, await asyncio.gather(*reading), strict=True):
            answer = expected(name)
            assert got.text == oracle.tok.decode(answer.tokens, skip_special_tokens=True)
            wave = np.concatenate(got.pieces)
            assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
        await asyncio.wait_for(leaving.released(), 20)


MIND = ("mm_aggregate", "thinker", "decode")


async def opened_for(client: Client, request: GenerateRequest) -> set[str]:
    """The stages that this request opened."""

    def counts() -> dict[str, int]:
        return {name: stage["requests"] for name, stage in client.stats()["stages"].items()}

    before = counts()
    generation = client.generate(request)
    await read(generation)
    await generation.released()
    return {name for name, count in counts().items() if count > before.get(name, 0)}


async def test_a_request_opens_only_what_it_needs(client: Client, ask: Ask) -> None:
    assert await opened_for(client, ask("text", id="plain", terminals=("text",))) == {"preprocessing", *MIND}
    assert await opened_for(client, ask("image", terminals=("text",))) == {"preprocessing", "image_encoder", *MIND}


async def test_the_text_pipeline(folder: str, ask: Ask, expected: Expected, oracle: Oracle) -> None:
    async with Client(LocalRuntime(build(folder, speech=False))) as client:
        got = await read(client.generate(ask("audio", terminals=("text",))))
        assert got.text == oracle.tok.decode(expected("audio").tokens, skip_special_tokens=True)
        with pytest.raises(Refused, match="no audio"):
            client.generate(ask("audio"))
        assert client.info.voices == () and client.info.terminals == {"chat": ("text",)}


async def test_an_empty_answer_ends_both_terminals(client: Client, ask: Ask, expected: Expected) -> None:
    silent = ask("text", thinker={"stop_token_ids": [expected("text").tokens[0]]})
    got = await read(client.generate(silent))
    assert not got.pieces and got.text == ""
    assert isinstance(got.ends["text"].data, TextResult) and got.ends["audio"].last


async def test_usage_tells_media_apart(client: Client, ask: Ask) -> None:
    got = await read(client.generate(ask("audio and image", terminals=("text",))))
    usage = got.ends["text"].data.usage
    # Two seconds of sound are 200 mel frames, 26 places; 96 x 64 pixels are 6 blocks of 32 x 32.
    assert (usage.prompt_audio_tokens, usage.prompt_image_tokens) == (26, 6)
    assert usage.completion_tokens == 12 and usage.prompt_tokens > 32


async def test_refused_in_a_stage_reaches_the_client(client: Client, ask: Ask) -> None:
    broken = ask("text", messages=(Message("user", (AudioPart(b"no sound", "wav"),)),))
    with pytest.raises(Refused, match=r"messages\[0\]\.parts\[0\]"):
        await read(client.generate(broken))
    sampled = ask("text", thinker={"temperature": 9.0})
    with pytest.raises(Refused, match="temperature"):
        await read(client.generate(sampled))


@pytest.mark.real
async def test_speech_is_read_beside_the_thinker(folder: str, ask: Ask, shared_audio: Path) -> None:
    """Whisper reads what the Thinker hears; a transcription alone opens no Thinker."""
    for name in ("whisper-base-ct2", "silero-vad"):
        try:
            weights.path(name)
        except WeightError as error:
            pytest.skip(str(error))
    speech = AudioPart((shared_audio / "jfk.flac").read_bytes(), "flac")
    async with Client(LocalRuntime(build(folder, transcriber="local"))) as client:
        heard = GenerateRequest(id="h", task="transcription", terminals=("transcript",), audio=speech)
        results = [e.data async for e in client.generate(heard) if e.last]
        assert "ask not what your country can do for you" in results[0].text.lower()
        assert "thinker" not in client.stats()["stages"]
        both = ask("text", messages=(Message("user", (speech,)),), terminals=("text", "transcript"))
        ends = {e.terminal: e.data async for e in client.generate(both) if e.last}
        assert ends["transcript"].text == results[0].text
        assert ends["text"].usage.prompt_audio_tokens > 100
