"""An SGLang server that is late, broken, busy or another one: what a client is told, and that the next request is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.engines.sglang.transport import ServerTransport
from antiphon.pipelines.errors import ConfigError, Refused, StageFailed
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.sglang_thinker import SglangThinker
from antiphon.pipelines.requests import GenerateRequest, Sampling
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Request
from tests.qwen3_omni.cases import HELLO, SYSTEM
from tests.qwen3_omni.fake_sglang import DONE, STREAM, Answering, FakeSglang, aborted, event, said
from tests.qwen3_omni.oracle import Oracle
from tests.qwen3_omni.test_graph import read

Ask = Callable[..., GenerateRequest]


def writes(*pieces: bytes, status: str = "") -> Answering:
    """An answer of these bytes, after which the connection is closed."""

    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode() if status else STREAM
        writer.write(b"".join((head, *pieces)))

    return answer


async def hangs(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + event(said([300], 1)))
    await writer.drain()
    await asyncio.Event().wait()


hangs_up = writes(event(said([300, 301], 2)))
TOO_LONG = "The input (40 tokens) is longer than the model's context length (32 tokens)."
BUSY = writes(status="503 Service Unavailable")
FAULTS: dict[str, tuple[list[Answering], type[Exception], str, bool | None]] = {
    "dies in the middle": ([hangs_up], StageFailed, "broke off in the middle", True),
    "ends without an end": ([writes(event(said([300], 1)), DONE)], StageFailed, "broke off in the middle", True),
    "half a line": ([writes(event(said([300], 1)), b'data: {"text": \n\n')], StageFailed, "no JSON", True),
    "no object": ([writes(event(said([300], 1)), event(17))], StageFailed, "unknown shape", True),
    "odd types": ([writes(event({"output_ids": "abc", "meta_info": 5}))] * 2, StageFailed, "unknown shape", True),
    "messages dropped": ([writes(event(said([300], 1)), event(said([303], 4)))], StageFailed, "left out", True),
    "another vocabulary": ([writes(event(said([151_643], 1)))], StageFailed, "token that this checkpoint does not", False),
    "busy for a while": ([BUSY, BUSY], StageFailed, "answered 503", True),
    "a full queue": (
        [writes(event(said([], 0, aborted(503, "The request queue is full."))))] * 2, StageFailed, "is too busy", True,
    ),
    "aborted there": ([writes(event(said([300], 1)), event(said([300], 1, aborted(None, "x"))))], StageFailed, "gave", True),
    "fails there": ([writes(event({"error": {"message": "/root/x.py", "code": 500}}))] * 2, StageFailed, "an error in", True),
    "too long there": ([writes(event({"error": {"message": TOO_LONG}}), DONE)], Refused, r"\(32 tokens\)", None),
    "a bare error": ([writes(event({"error": "no such thing"}), DONE)], Refused, "no such thing", None),
    "no such schema": ([writes(event(said([], 0, aborted(400, "Failed to compile"))))], Refused, "Failed to compile", None),
    "400": ([writes(b'{"error": "sampling_params.top_p"}', status="400 Bad Request")], Refused, "top_p", None),
    "400, flat": ([writes(b'{"object": "error", "message": "rid"}', status="400 Bad Request")], Refused, "400.: rid", None),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
async def test_a_fault_is_told_and_the_next_request_is_served(name: str, folder: str, ask: Ask, oracle: Oracle) -> None:
    script, kind, told, retryable = FAULTS[name]
    fake = FakeSglang([*oracle.tok.encode("hello there"), oracle.model.config.im_end_token_id])
    fake.script = list(script)
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        asked = ask("text", terminals=("text",), sampling=Sampling(max_tokens=40))
        with pytest.raises(kind, match=told) as caught:
            await read(client.generate(asked))
        assert url not in str(caught.value) and "/root" not in str(caught.value)
        assert getattr(caught.value, "retryable", None) == retryable
        assert not fake.script and (await read(client.generate(asked))).text == "hello there"


@pytest.mark.parametrize("fault", [BUSY, writes(), writes(status="500 Internal Server Error")])
async def test_what_fails_before_a_word_is_tried_once_more(fault: Answering, folder: str, ask: Ask, oracle: Oracle) -> None:
    fake = FakeSglang([*oracle.tok.encode("hello there"), oracle.model.config.im_end_token_id])
    fake.script = [fault]
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        assert (await read(client.generate(ask("text", terminals=("text",))))).text == "hello there"
    assert len({body["rid"] for body in fake.bodies}) == 2, "a name is not used again while the server may hold it"


async def test_an_empty_answer_is_no_speech(folder: str, ask: Ask) -> None:
    fake = FakeSglang([])
    fake.script = [writes(event(said([], 0, {"type": "stop", "matched": 1})), DONE)]
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        got = await read(client.generate(ask("text")))
    assert got.text == "" and not got.pieces and got.ends["text"].data.finish_reason == "stop"


async def nothing() -> AsyncIterator[Any]:
    return
    yield


async def test_a_server_that_hangs_is_not_waited_for(folder: str, ask: Ask, bench: Any) -> None:
    fake = FakeSglang([])
    fake.script = [hangs]
    body = ask("text", terminals=("text",))
    inputs = await asyncio.to_thread(bench.thinker_input, body)
    async with fake.serve() as url:
        stage = SglangThinker(folder, url=url, model_name="omni")
        stage.transport = ServerTransport(url, "omni", stall_s=0.2)
        with pytest.raises(StageFailed, match="did not answer in time") as caught:
            async for _ in stage.run(Request(id="h", terminals=("text",), body=body), inputs, nothing()):
                pass
        assert caught.value.retryable
        async with asyncio.timeout(20):
            while fake.open:  # noqa: ASYNC110 - a server's count has no event
                await asyncio.sleep(0.01)
        await stage.shut_down()


async def test_a_server_may_come_up_after_us_and_come_back(folder: str, ask: Ask, oracle: Oracle) -> None:
    tokens = [*oracle.tok.encode("hello there"), oracle.model.config.im_end_token_id]
    async with FakeSglang(tokens).serve() as url:
        port = int(url.split(":")[2].partition("/")[0])
    body = ask("text", terminals=("text",))
    async with Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        for _ in range(2):
            with pytest.raises(StageFailed, match="could not be reached") as caught:
                await read(client.generate(body))
            assert caught.value.retryable
            async with FakeSglang(tokens).serve(port):
                assert (await read(client.generate(body))).text == "hello there"
        narrow = FakeSglang(tokens)
        narrow.takes = 50
        with pytest.raises(StageFailed, match="could not be reached"):
            await read(client.generate(body))
        async with narrow.serve(port):
            with pytest.raises(StageFailed, match="not the one that this server was set up for") as caught:
                await read(client.generate(body))
            assert not caught.value.retryable and not narrow.bodies


async def test_a_server_that_is_not_the_right_one_is_told_at_the_start(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(thinker: str) -> None:
        async with Client(LocalRuntime(build(folder, thinker=thinker))):
            pass

    fake = FakeSglang([1])
    async with fake.serve() as url:
        with pytest.raises(ConfigError, match="has no model another; its /v1/models tells the names") as caught:
            await start(f"openai:{url}#another")
        assert "127.0.0.1" not in str(caught.value)
        fake.takes = 1024
        with pytest.raises(ConfigError, match=r"takes 1024 tokens, this pipeline counts on 4096: set context = 1024"):
            await start(f"openai:{url}#omni")
        fake.takes, fake.key = 4096, "secret"
        with pytest.raises(ConfigError, match="does not accept our key: ANTIPHON_THINKER_API_KEY"):
            await start(f"openai:{url}#omni")
        monkeypatch.setenv("ANTIPHON_THINKER_API_KEY", "secret")
        await start(f"openai:{url}#omni")


async def test_a_prompt_that_does_not_fit_is_told_with_the_numbers(folder: str, ask: Ask, oracle: Oracle) -> None:
    """The last place of the context is left free: SGLang up to 0.5.10 takes no request that could fill it."""
    fake = FakeSglang([1])
    turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}]
    length = oracle.text(turns)["input_ids"].shape[1]
    body = ask("text", terminals=("text",), sampling=Sampling(max_tokens=1000))
    async with fake.serve() as url:
        for context in (length + 1, length + 10):
            config = build(folder, thinker=f"openai:{url}#omni", stage_args={"thinker": {"context": context}})
            async with Client(LocalRuntime(config)) as client:
                try:
                    await read(client.generate(body))
                except Refused as error:
                    assert str(error) == f"this model's maximum context length is {context} tokens; the prompt has {length}"
                    assert error.code == "context_length_exceeded"
                    continue
            sent = fake.bodies[-1]
            assert len(sent["input_ids"]) + sent["sampling_params"]["max_new_tokens"] == context - 1
    assert len(fake.bodies) == 1
