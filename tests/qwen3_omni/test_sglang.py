"""SGLang as the Thinker. ``FakeSglang`` speaks the message shapes of its releases over real HTTP; no SGLang runs here."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.engines.sglang.transport import EngineTransport
from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.outputs import TextResult
from antiphon.pipelines.qwen3_omni.payloads import Finished
from antiphon.pipelines.qwen3_omni.pipeline import SGLANG_NOTE, build
from antiphon.pipelines.qwen3_omni.sglang_thinker import SglangThinker
from antiphon.pipelines.requests import GenerateRequest, Sampling
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Request
from tests.qwen3_omni.cases import HELLO, SYSTEM
from tests.qwen3_omni.fake_sglang import FakeSglang
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import read

Expected = Callable[[str], Answer]
Ask = Callable[..., GenerateRequest]


async def played(stage: SglangThinker, body: GenerateRequest, bench: Any) -> list[Any]:
    """What the stage says to this request, read by somebody who is slower than the engine."""

    async def nothing() -> AsyncIterator[Any]:
        return
        yield

    inputs = await asyncio.to_thread(bench.thinker_input, body)
    said = []
    async for output in stage.run(Request(id="e", terminals=body.terminals, body=body), inputs, nothing()):
        said.append(output.data)
        for _ in range(3):
            await asyncio.sleep(0)
    await stage.shut_down()
    return said[:-1]


@pytest.mark.parametrize("incremental", [False, True])
async def test_a_text_prompt_speaks_as_with_our_own_thinker(
    incremental: bool, folder: str, ask: Ask, expected: Expected, oracle: Oracle
) -> None:
    """The same ids in, the same codes and samples out: the Talker needs nothing else of a text prompt."""
    answer = expected("text")
    fake = FakeSglang(answer.tokens, "length", incremental)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(ask("text")))
    async with Client(LocalRuntime(build(folder))) as client:
        ours = await read(client.generate(ask("text")))
    assert got.text == oracle.tok.decode(answer.tokens)
    wave = np.concatenate(got.pieces)
    assert np.array_equal(wave, np.concatenate(ours.pieces))
    assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
    result = got.ends["text"].data
    assert isinstance(result, TextResult) and result.finish_reason == "length"
    assert result.usage.completion_tokens == len(answer.tokens) and result.usage.cached_tokens == 4
    body = fake.bodies[0]
    assert body["stream"] is True and body["sampling_params"]["max_new_tokens"] == len(answer.tokens)
    assert body["sampling_params"]["temperature"] == 0 and body["sampling_params"]["top_k"] == -1
    turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
    assert body["input_ids"] == oracle.text(turns)["input_ids"][0].tolist()


async def test_an_end_mark_is_neither_shown_nor_spoken(folder: str, ask: Ask, oracle: Oracle) -> None:
    end = oracle.model.config.im_end_token_id
    words = oracle.tok.encode("hello there")
    # Up to 0.5.10 an end mark that falls on the limit is told as "length"; one of the server's own may be none of ours.
    own = oracle.tok.convert_tokens_to_ids("<|im_start|>")
    for tokens, told in (([*words, end], "stop"), ([*words, end], "length"), ([*words, own], "stop")):
        fake = FakeSglang(tokens, told)
        async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
            got = await read(client.generate(ask("text", terminals=("text",), sampling=Sampling(max_tokens=len(tokens)))))
            assert got.text == "hello there" and got.ends["text"].data.finish_reason == "stop"
    async with FakeSglang([end]).serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(ask("text")))
        assert got.text == "" and not got.pieces


@pytest.mark.parametrize("asked", [4, 100])
async def test_an_answer_is_as_long_as_the_narrower_limit(
    asked: int, folder: str, ask: Ask, oracle: Oracle, bench: Any
) -> None:
    """Ours, of a server that says more than it was asked for, or the server's own. The last token is shown and not spoken."""
    words = oracle.tok.encode("hello sound is clear, then a voice.")
    fake = FakeSglang(words, "length")
    body = ask("text", sampling=Sampling(max_tokens=asked))
    async with fake.serve() as url:
        said = await played(SglangThinker(folder, url=url, model_name="omni"), body, bench)
        async with Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
            got = await read(client.generate(ask("text", terminals=("text",), sampling=Sampling(max_tokens=asked))))
    made = min(asked, len(words))
    assert [s.token for s in said] == words[:made] and isinstance(said[-1], Finished)
    assert got.text == oracle.tok.decode(words[:made])
    result = got.ends["text"].data
    assert result.finish_reason == "length" and result.usage.completion_tokens == made


async def test_an_abort_waits_for_the_engine_s_own_word(folder: str, ask: Ask, expected: Expected) -> None:
    fake = FakeSglang(expected("text").tokens * 40, pace=0.02)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        generation = client.generate(ask("text", terminals=("text",), sampling=Sampling(max_tokens=400)))
        async for _ in generation:
            generation.abort()
            break
        await generation.released()
        assert fake.confirmed == [fake.bodies[0]["rid"]]
        async with asyncio.timeout(20):
            while fake.open:  # noqa: ASYNC110 - a server's count has no event
                await asyncio.sleep(0.01)


async def test_one_abort_is_not_another_request_s(folder: str, ask: Ask, oracle: Oracle) -> None:
    """SGLang aborts every request whose name begins with the one it is given."""
    words = oracle.tok.encode("hello sound is clear, then a voice. ") * 4
    fake = FakeSglang(words, "length", pace=0.02)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:

        def asked(id: str) -> GenerateRequest:
            return ask("text", id=id, terminals=("text",), sampling=Sampling(max_tokens=len(words)))

        leaving, staying = client.generate(asked("r1")), asyncio.ensure_future(read(client.generate(asked("r12"))))
        async for _ in leaving:
            leaving.abort()
            break
        await leaving.released()
        assert (await staying).text == oracle.tok.decode(words)


async def test_a_stop_string_stops_the_engine_too(folder: str, ask: Ask, oracle: Oracle) -> None:
    words = oracle.tok.encode("hello sound is clear, then a voice. ") * 8
    fake = FakeSglang(words, pace=0.005)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        stopping = Sampling(max_tokens=400, stop=("clear",))
        got = await read(client.generate(ask("text", terminals=("text",), sampling=stopping)))
    assert got.text == "hello sound is " and got.ends["text"].data.finish_reason == "stop"
    assert fake.confirmed


async def test_as_many_at_once_as_there_are_places_and_more(folder: str, ask: Ask, oracle: Oracle) -> None:
    words = oracle.tok.encode("hello sound is clear, then a voice.")
    fake = FakeSglang(words, "length", pace=0.01)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        bodies = [ask("text", id=f"{n}", terminals=("text",), sampling=Sampling(max_tokens=len(words))) for n in range(40)]
        for got in await asyncio.gather(*(read(client.generate(body)) for body in bodies)):
            assert got.text == oracle.tok.decode(words)
    assert fake.most_open > 8


def test_media_are_refused_by_name(folder: str, ask: Ask) -> None:
    config = build(folder, thinker="openai:http://127.0.0.1:9/v1#omni")
    assert config.info.inputs["chat"] == ("text",)
    body = ask("image")
    with pytest.raises(Refused, match="media are not supported with a thinker outside"):
        config.plan(Request(id="x", terminals=body.terminals, body=body))
    with pytest.raises(ConfigError, match="gguf"):
        build(folder, thinker="gguf:x")


@pytest.mark.parametrize(
    ("thinker", "model"), [("openai:http://h:1/v1#omni", "omni"), ("openai:http://h:1/v1#/data/omni", "omni"), ("sglang", None)]
)
def test_it_is_told_what_runs_there(thinker: str, model: str | None, folder: str) -> None:
    config = build(folder, thinker=thinker, preset="two_gpus")
    assert config.info.models["thinker"] == (model or config.info.model) and SGLANG_NOTE in config.info.notes
    assert "not verified on a GPU" in config.info.notes and SGLANG_NOTE not in build(folder).info.notes
    assert config.stages["thinker"].gpu == (() if model else (0,)) and config.stages["talker_ar"].gpu == (1,)


def test_a_setting_that_is_none_of_its_own_is_named(folder: str) -> None:
    for wrong in ({"kv_tokens": 5}, {"contxt": 5}):
        with pytest.raises(ConfigError, match="it takes context, engine"):
            build(folder, thinker="sglang", stage_args={"thinker": wrong})
    assert build(folder, thinker="sglang", stage_args={"thinker": {"context": 99}}).info.context_tokens == 99


async def test_the_engine_in_this_process(folder: str, ask: Ask, expected: Expected, bench: Any) -> None:
    """Through the same stage, on a stand-in with the engine's signature; like it, that writes on into the list it has given."""
    answer = expected("text")
    fake = FakeSglang(answer.tokens, "length")
    stage = SglangThinker(folder, url="http://127.0.0.1:9", model_name="omni")
    stage.transport = EngineTransport(folder, {}, engine=fake)
    await stage.warm_up()
    body = ask("text")
    said = await played(stage, body, bench)
    assert [s.token for s in said] == answer.tokens and said[0].prompt is not None and isinstance(said[-1], Finished)
    assert len(fake.bodies[0]["rid"]) == 32

    async def refusing(**_: Any) -> AsyncIterator[Any]:
        async def messages() -> AsyncIterator[Any]:
            raise ValueError("The input (70 tokens) is longer than the model's context length (64 tokens).")
            yield

        return messages()

    fake.async_generate = refusing  # type: ignore[method-assign]
    with pytest.raises(Refused, match="70 tokens"):
        await played(stage, body, bench)


def test_without_the_package_it_is_said_what_to_do(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sglang", None)
    with pytest.raises(ConfigError, match="run SGLang as a server of its own: --thinker openai:URL#MODEL"):
        SglangThinker(folder)


def test_the_installed_engine_has_the_signature() -> None:
    sglang = pytest.importorskip("sglang", reason="sglang is not installed here: its engine needs a GPU")
    parameters = inspect.signature(sglang.Engine.async_generate).parameters
    assert {"input_ids", "sampling_params", "stream", "rid"} <= parameters.keys()
    ours = inspect.signature(FakeSglang.async_generate).parameters
    assert set(ours) - {"self"} <= parameters.keys()
