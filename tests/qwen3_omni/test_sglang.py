"""SGLang as the Thinker. ``FakeSglang`` speaks the message shapes of sglang 0.5.23 over real HTTP; no SGLang runs here."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import ConfigError, Refused, StageFailed
from antiphon.pipelines.outputs import TextResult
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.sglang_thinker import EngineTransport, SglangThinker
from antiphon.pipelines.requests import GenerateRequest, Sampling
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Request
from tests.qwen3_omni.cases import HELLO, SYSTEM
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import read

Expected = Callable[[str], Answer]
Ask = Callable[..., GenerateRequest]


class FakeSglang:
    """A stand-in for an SGLang server that says ``tokens``. ``incremental``: its messages carry only what is new."""

    def __init__(self, tokens: list[int], end: str = "stop", incremental: bool = False, pace: float = 0.0) -> None:
        self.tokens, self.end, self.incremental, self.pace = tokens, end, incremental, pace
        self.bodies: list[dict[str, Any]] = []
        self.aborted: set[str] = set()
        self.confirmed: list[str] = []

    async def messages(self, rid: str) -> AsyncIterator[dict[str, Any]]:
        for n in range(1, len(self.tokens) + 1):
            await asyncio.sleep(self.pace)
            last = n == len(self.tokens)
            reason: dict[str, Any] | None = None
            if rid in self.aborted:
                reason, last = {"type": "abort", "message": "Aborted"}, True
                self.confirmed.append(rid)
            elif last:
                reason = {"type": self.end, **({"matched": self.tokens[-1]} if self.end == "stop" else {"length": n})}
            ids = self.tokens[n - 1 : n] if self.incremental else self.tokens[:n]
            meta = {"id": rid, "finish_reason": reason, "prompt_tokens": 9, "completion_tokens": n, "cached_tokens": 0}
            yield {"text": None, "output_ids": ids, "meta_info": meta}
            if last:
                return

    # as ``sglang.Engine``
    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool, rid: str
    ) -> AsyncIterator[dict[str, Any]]:
        self.bodies.append({"input_ids": input_ids, "sampling_params": sampling_params, "stream": stream, "rid": rid})
        return self.messages(rid)

    @property
    def tokenizer_manager(self) -> FakeSglang:
        return self

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        self.aborted.add(rid)

    def shutdown(self) -> None:
        self.tokens = []

    # as a server
    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0
            )
            body = json.loads(await reader.readexactly(length)) if length else {}
            path = head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n")
            if path == "/v1/models":
                writer.write(json.dumps({"object": "list", "data": [{"id": "omni"}]}).encode())
            elif path == "/abort_request":
                self.aborted.add(body["rid"])
            elif path == "/generate":
                self.bodies.append(body)
                async for message in self.messages(body["rid"]):
                    writer.write(b"data: " + json.dumps(message).encode() + b"\n\n")
                    await writer.drain()
                writer.write(b"data: [DONE]\n\n")
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        finally:
            listening.close()
            await listening.wait_closed()


@pytest.mark.parametrize("incremental", [False, True])
async def test_a_text_prompt_speaks_as_with_our_own_thinker(
    incremental: bool, folder: str, ask: Ask, expected: Expected, oracle: Oracle
) -> None:
    """The same ids in, the same codes and samples out: the Talker needs nothing else of a text prompt."""
    answer = expected("text")
    fake = FakeSglang(answer.tokens, "length", incremental)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(ask("text")))
    assert got.text == oracle.tok.decode(answer.tokens)
    wave = np.concatenate(got.pieces)
    assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
    result = got.ends["text"].data
    assert isinstance(result, TextResult) and result.finish_reason == "length"
    assert result.usage.completion_tokens == len(answer.tokens)
    body = fake.bodies[0]
    assert body["stream"] is True and body["sampling_params"]["max_new_tokens"] == len(answer.tokens)
    assert body["sampling_params"]["temperature"] == 0 and body["sampling_params"]["top_k"] == -1
    turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
    assert body["input_ids"] == oracle.text(turns)["input_ids"][0].tolist()


async def test_an_end_mark_is_neither_shown_nor_spoken(folder: str, ask: Ask, oracle: Oracle) -> None:
    end = oracle.model.config.im_end_token_id
    words = oracle.tok.encode("hello there")
    async with (
        FakeSglang([*words, end]).serve() as url,
        Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client,
    ):
        got = await read(client.generate(ask("text", terminals=("text",))))
        assert got.text == "hello there" and got.ends["text"].data.finish_reason == "stop"
    async with FakeSglang([end]).serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(ask("text")))
        assert got.text == "" and not got.pieces


async def test_an_abort_waits_for_the_engine_s_own_word(folder: str, ask: Ask, expected: Expected) -> None:
    fake = FakeSglang(expected("text").tokens * 40, pace=0.02)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        generation = client.generate(ask("text", terminals=("text",), sampling=Sampling(max_tokens=400)))
        async for _ in generation:
            generation.abort()
            break
        await generation.released()
        assert fake.confirmed == [generation.id]


async def test_a_stop_string_stops_the_engine_too(folder: str, ask: Ask, oracle: Oracle) -> None:
    words = oracle.tok.encode("hello sound is clear, then a voice. ") * 8
    fake = FakeSglang(words, pace=0.005)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        stopping = Sampling(max_tokens=400, stop=("clear",))
        got = await read(client.generate(ask("text", terminals=("text",), sampling=stopping)))
    assert got.text == "hello sound is " and got.ends["text"].data.finish_reason == "stop"
    assert fake.confirmed


async def test_what_goes_wrong_is_named(folder: str, ask: Ask) -> None:
    with pytest.raises(ConfigError, match="no SGLang server answers"):
        async with Client(LocalRuntime(build(folder, thinker="openai:http://127.0.0.1:9/v1#omni"))):
            pass
    async with FakeSglang([1]).serve() as url:
        with pytest.raises(ConfigError, match="serves omni, not another"):
            async with Client(LocalRuntime(build(folder, thinker=f"openai:{url}#another"))):
                pass
    async with (
        FakeSglang([300, 301], "abort").serve() as url,
        Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client,
    ):
        with pytest.raises(StageFailed, match="ended the answer: abort"):
            await read(client.generate(ask("text")))


def test_media_are_refused_by_name(folder: str, ask: Ask) -> None:
    config = build(folder, thinker="openai:http://127.0.0.1:9/v1#omni")
    assert config.info.inputs["chat"] == ("text",)
    body = ask("image")
    with pytest.raises(Refused, match="media are not supported with a thinker outside"):
        config.plan(Request(id="x", terminals=body.terminals, body=body))
    with pytest.raises(ConfigError, match="gguf"):
        build(folder, thinker="gguf:x")


async def test_the_engine_in_this_process(folder: str, ask: Ask, expected: Expected, bench: Any) -> None:
    """Through the same stage, on a stand-in with the engine's signature."""
    answer = expected("text")
    fake = FakeSglang(answer.tokens, "length")
    stage = SglangThinker(folder, url="http://127.0.0.1:9")
    stage.transport = EngineTransport(folder, {}, engine=fake)
    await stage.warm_up()
    body = ask("text")
    inputs = await asyncio.to_thread(bench.thinker_input, body)

    async def nothing() -> AsyncIterator[Any]:
        return
        yield

    said = [o.data async for o in stage.run(Request(id="e", terminals=body.terminals, body=body), inputs, nothing())]
    assert [s.token for s in said[:-2]] == answer.tokens[:-1] and said[0].prompt is not None
    assert said[-2].token == answer.tokens[-1] and fake.bodies[0]["rid"] == "e"
    await stage.shut_down()


def test_the_installed_engine_has_the_signature() -> None:
    sglang = pytest.importorskip("sglang", reason="sglang is not installed here: its engine needs a GPU")
    parameters = inspect.signature(sglang.Engine.async_generate).parameters
    assert {"input_ids", "sampling_params", "stream", "rid"} <= parameters.keys()
    ours = inspect.signature(FakeSglang.async_generate).parameters
    assert set(ours) - {"self"} <= parameters.keys()
