"""A given text through the graph and through ``/v1/audio/speech``: what it opens, streams and leaves, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import soundfile

from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.outputs import AudioResult
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.qwen3_omni.pipeline import MAX_OPEN, build
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.qwen3_omni.fake_sglang import FakeSglang
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import opened_for, read
from tests.qwen3_omni.test_speech import LONG, SPEECHES, Speech, forced
from tests.realtime.rest.conftest import Server, serving

openai = pytest.importorskip("openai")

Ask = Callable[..., GenerateRequest]
Expected = Callable[[str], Answer]
GREEDY = {"stage_params": {"talker": {"temperature": 0.0}}}


def assert_said(pieces: list[np.ndarray], answer: Answer) -> None:
    wave = np.concatenate(pieces)
    assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE


async def test_beside_chats_and_an_abort_that_leaves_nothing(folder: str, ask: Ask, expected: Expected, oracle: Oracle) -> None:
    names = ["natural end", "seeded", "two tokens"]
    async with Client(LocalRuntime(build(folder))) as client:
        reading = {name: asyncio.ensure_future(read(client.generate(SPEECHES[name].request(name)))) for name in names}
        chat = asyncio.ensure_future(read(client.generate(ask("text"))))
        leaving = client.generate(Speech(LONG * 6, frames=400).request("leaving"))
        async for _ in leaving:
            leaving.abort()
            break
        for name, future in reading.items():
            got = await future
            assert_said(got.pieces, forced(oracle, SPEECHES[name]))
            assert isinstance(got.ends["audio"].data, AudioResult) and got.ends.keys() == {"audio"}
        assert_said((await chat).pieces, expected("text"))
        await leaving.released()
        # As many as the talker has places for, were one not given back.
        short = Speech("Hi", frames=4)
        for got in await asyncio.gather(*(read(client.generate(short.request(f"{n}"))) for n in range(MAX_OPEN))):
            assert_said(got.pieces, forced(oracle, short))
        assert await opened_for(client, SPEECHES["two tokens"].request("last")) == {"preprocessing", "talker_ar", "code2wav"}
        assert await opened_for(client, Speech(" \n").request("empty")) == {"preprocessing"}
        assert client.stats()["stages"]["thinker"]["requests"] == 1, "the chat's"


@pytest.mark.parametrize("credits", [1, 3])
async def test_pulled_by_the_talker_where_credit_is_short(credits: int, folder: str, oracle: Oracle) -> None:
    config = build(folder)
    stages = [replace(s, credits=credits) if s.name == "preprocessing" else s for s in config.stages.values()]
    short = PipelineConfig(config.name, config.entry, stages, info=config.info, check=config.check)
    async with Client(LocalRuntime(short)) as client:
        got = await read(client.generate(SPEECHES["natural end, longer"].request()))
        assert_said(got.pieces, forced(oracle, SPEECHES["natural end, longer"]))


async def test_speeches_that_nobody_reads_do_not_hold_up_a_chat(
    folder: str, ask: Ask, expected: Expected, oracle: Oracle
) -> None:
    """As many as the entry has places for, each with more text than has credit further on."""
    async with Client(LocalRuntime(build(folder))) as client:
        sizes = {"first_chunk_frames": 1, "chunk_frames": 1}
        left = [client.generate(Speech(LONG * 60, frames=900).request(f"{n}", code2wav=sizes)) for n in range(MAX_OPEN)]
        chat = ask("text", terminals=("text",))
        got = await asyncio.wait_for(read(client.generate(chat)), 30)
        assert got.text == oracle.tok.decode(expected("text").tokens)
        for generation in left:
            assert not generation.ended
            generation.abort()
            await generation.released()


async def test_in_several_processes_beside_a_chat(folder: str, ask: Ask, expected: Expected, oracle: Oracle) -> None:
    spec = PipelineSpec("antiphon.pipelines.qwen3_omni.pipeline:build", {"folder": folder, "preset": "cpu_apart"})
    async with Client(ProcessRuntime(spec)) as client:
        long = Speech(LONG * 15, "Chelsie", frames=230)
        bodies = [SPEECHES["seeded"].request(), ask("chelsie"), long.request("long")]
        leaving = client.generate(Speech(LONG * 20, frames=400).request("leaving"))
        reading = [asyncio.ensure_future(read(client.generate(body))) for body in bodies]
        async for _ in leaving:
            leaving.abort()
            break
        said, chat, longer = await asyncio.gather(*reading)
        assert_said(said.pieces, forced(oracle, SPEECHES["seeded"]))
        assert_said(chat.pieces, expected("chelsie"))
        assert_said(longer.pieces, forced(oracle, long))
        await asyncio.wait_for(leaving.released(), 20)


async def test_a_dead_thinker_is_not_missed(folder: str, oracle: Oracle) -> None:
    """Neither by a speech under way nor by one that is asked for before it serves again."""
    spec = PipelineSpec("antiphon.pipelines.qwen3_omni.pipeline:build", {"folder": folder, "preset": "cpu_apart"})
    async with Client(ProcessRuntime(spec)) as client:
        going = asyncio.ensure_future(read(client.generate(SPEECHES["seeded"].request("going"))))
        await asyncio.sleep(0)
        (mind,) = (p for name, p in client.health()["processes"].items() if name.startswith("thinker"))
        os.kill(int(mind["place"].split()[1]), signal.SIGKILL)
        async with asyncio.timeout(10):
            while "thinker" not in client.health()["unavailable"]:  # noqa: ASYNC110 - health has no event
                await asyncio.sleep(0.001)
        asked = client.generate(SPEECHES["two tokens"].request("asked"))
        assert "thinker" in client.health()["unavailable"]
        assert_said((await read(asked)).pieces, forced(oracle, SPEECHES["two tokens"]))
        assert_said((await going).pieces, forced(oracle, SPEECHES["seeded"]))


async def test_with_a_thinker_outside(folder: str, oracle: Oracle) -> None:
    fake = FakeSglang([1])
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(SPEECHES["natural end"].request()))
    assert_said(got.pieces, forced(oracle, SPEECHES["natural end"]))
    assert not fake.bodies


@asynccontextmanager
async def speaking(folder: str, **changes: Any) -> AsyncIterator[tuple[Server, Any]]:
    async with serving(Client(LocalRuntime(build(folder, **changes))), Settings()) as server:
        while not server.state.ready:  # noqa: ASYNC110 - the state has a flag, no event
            await asyncio.sleep(0.05)
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=0) as ai:
            yield server, ai


def close(samples: np.ndarray, answer: Answer) -> bool:
    """The same samples in 16 bits."""
    whole = np.clip(answer.wave, -1, 32767 / 32768)
    return len(samples) == len(whole) and bool(np.abs(samples - whole).max() < 2 / 32768)


async def test_the_openai_client_speaks(folder: str, oracle: Oracle) -> None:
    answer = forced(oracle, SPEECHES["natural end"])
    asked: dict[str, Any] = {"model": "tiny", "input": SPEECHES["natural end"].text, "voice": "chelsie"}
    async with speaking(folder) as (server, ai):
        whole = await ai.audio.speech.create(**asked, response_format="wav", extra_body=GREEDY)
        samples, rate = soundfile.read(io.BytesIO(whole.content))
        assert rate == 24000 and close(samples, answer)
        heard: list[bytes] = []
        streamed = ai.audio.speech.with_streaming_response.create(
            **asked, response_format="pcm", instructions="Whisper.", extra_body=GREEDY
        )
        async with streamed as response:
            heard += [piece async for piece in response.iter_bytes(4096)]
        assert len(heard) > 2 and close(np.frombuffer(b"".join(heard), "<i2") / 32768, answer)
        told = await server.http.post(
            "/v1/audio/speech", json={**asked, **GREEDY, "response_format": "pcm", "stream_format": "sse"}
        )
        events = [json.loads(line.removeprefix("data: ")) for line in told.text.splitlines() if line]
        sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
        assert len(events) > 2 and close(np.frombuffer(sound, "<i2") / 32768, answer)
        # A token for each begun four characters, and for each begun 50 ms.
        frames = -(-len(answer.wave) // 1200)
        assert events[-1]["usage"] == {"input_tokens": 7, "output_tokens": frames, "total_tokens": 7 + frames}
        ethan = SPEECHES["cut"]
        default = await ai.audio.speech.create(
            model="tiny", input=ethan.text, voice="alloy", response_format="pcm",
            extra_body={"stage_params": ethan.request().stage_params},
        )  # fmt: skip
        assert close(np.frombuffer(default.content, "<i2") / 32768, forced(oracle, ethan)), "OpenAI's names mean the first"
        silent = await ai.audio.speech.create(**{**asked, "input": " \n "}, response_format="pcm")
        assert silent.content == b""
        (model, *_) = (await server.http.get("/v1/models")).json()["data"]
        assert model["terminals"]["speech"] == ["audio"] and "/v1/audio/speech" in model["endpoints"]
        voices = (await server.http.get("/v1/audio/voices")).json()["voices"]
        assert voices == ["ethan", "aiden", "chelsie"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"voice": "nobody"}, "Unknown voice 'nobody'"),
    ({"speed": 1.5}, "speed is not supported"),
    ({"input": ""}, "the text is empty"),
    ({"input": "你" * 3000}, "the text would take 467 s even if it were read fast"),
    ({"extra_body": {"stage_params": {"talker": {"max_tokens": 12}}}}, "the text is 14 tokens long"),
    ({"extra_body": {"stage_params": {"talker": {"temperature": 9.0}}}}, "temperature"),
    ({"extra_body": {"language": "sw"}}, "cannot speak 'sw'"),
]


async def test_refused_by_name_before_a_sound(folder: str) -> None:
    async with speaking(folder) as (server, ai):
        for change, said in REFUSED:
            with pytest.raises(openai.BadRequestError, match=said):
                await ai.audio.speech.create(**{"model": "tiny", "input": LONG, "voice": "ethan", **change})
        assert "talker_ar" not in server.state.client.stats()["stages"]


async def test_a_listener_who_hangs_up_and_a_server_without_a_voice(folder: str) -> None:
    async with speaking(folder) as (server, ai):
        streamed = ai.audio.speech.with_streaming_response.create(
            model="tiny", input=LONG * 12, voice="ethan", response_format="pcm",
            extra_body={"stage_params": {"talker": {"max_tokens": 2000, "temperature": 0.0}}},
        )  # fmt: skip
        async with streamed as response:
            async for _ in response.iter_bytes(1024):
                break
        client = server.state.client
        async with asyncio.timeout(10):
            while client.running:  # noqa: ASYNC110 - the client has a count, no event
                await asyncio.sleep(0.02)
        assert client.stats()["aborted"] == 1
    async with speaking(folder, speech=False) as (_, ai):
        with pytest.raises(openai.APIStatusError, match="does not serve speech; it serves chat"):
            await ai.audio.speech.create(model="tiny", input="Hi", voice="ethan")
