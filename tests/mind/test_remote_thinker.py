"""The remote Thinker against a fake OpenAI server: its stream, its faults, and that hanging up reaches the server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.pipelines.engines.openai.breaker import Breaker
from antiphon.pipelines.engines.openai.thinker import OpenAIThinker
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult, Usage
from antiphon.pipelines.requests import AudioPart, Message, Sampling, TextPart, Tool, ToolCall, ToolChoice
from antiphon.pipelines.stage import Chunk, Request
from tests.mind import fake_openai as fake
from tests.mind.driver import body
from tests.mind.fake_openai import FakeOpenAI


async def nothing() -> AsyncIterator[Chunk]:
    return
    yield


async def say(thinker: OpenAIThinker, asked: Any) -> list[Any]:
    request = Request(id="r", terminals=asked.terminals, body=asked)
    return [o.data async for o in thinker.run(request, asked, nothing())]


@pytest.fixture
async def make() -> AsyncIterator[Any]:
    made: list[OpenAIThinker] = []

    def build(server: FakeOpenAI, **options: Any) -> OpenAIThinker:
        made.append(OpenAIThinker(server.url, "m", **options))
        return made[-1]

    yield build
    for thinker in made:
        await thinker.shut_down()


async def test_text_streams_and_ends_with_usage(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_THINKER_API_KEY", "secret")
    async with FakeOpenAI([fake.good]) as server:
        asked = body(["Hi", "Yes?", "Tell me."], sampling=Sampling(max_tokens=5, temperature=0.5, stop=("x",), seed=3))
        said = await say(make(server), asked)
    assert said == [TextDelta("Hel"), TextDelta("lo."), TextResult("stop", Usage(7, 3, 2))]
    sent = server.asked[0]
    assert sent.path == "/v1/chat/completions" and sent.headers["authorization"] == "Bearer secret"
    assert [m["role"] for m in sent.json["messages"]] == ["system", "user", "assistant", "user"]
    assert {k: sent.json[k] for k in ("model", "stream", "max_tokens", "temperature", "stop", "seed")} == {
        "model": "m", "stream": True, "max_tokens": 5, "temperature": 0.5, "stop": ["x"], "seed": 3,
    }  # fmt: skip


async def test_lines_end_where_those_of_an_event_stream_do(make: Any) -> None:
    """Many servers write JSON's letters as they are, and pieces of the network end anywhere."""
    text = "a\u2028b\x85c\u2029d"

    async def raw(c: fake.Connection) -> None:
        await c.head()
        events = (fake.delta(text), fake.delta(finish="stop"))
        sent = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\r\n\r\n" for event in events)
        for byte in sent.encode():
            await c.write(bytes([byte]))
        await c.event(b"[DONE]")

    async with FakeOpenAI([raw]) as server:
        said = await say(make(server), body(["Hi"]))
    assert said[0] == TextDelta(text) and isinstance(said[1], TextResult)


async def test_tools_pass_through_both_ways(make: Any) -> None:
    async def calls(c: fake.Connection) -> None:
        await c.head()
        first = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}
        await c.event(fake.delta(tool_calls=[first]))
        await c.event(fake.delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]))
        await c.event(fake.delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]))
        await c.event(fake.delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}}]))
        await c.event(fake.delta(finish="tool_calls"))
        await c.event(b"[DONE]")

    messages = (
        Message("user", (TextPart("x"),)),
        Message("assistant", (), (ToolCall("c0", "f", "{}"),)),
        Message("tool", (TextPart("42"),), call_id="c0"),
    )
    tools = (Tool("f", "does f", {"type": "object"}), Tool("g"))
    async with FakeOpenAI([calls]) as server:
        said = await say(make(server), body("", messages=messages, tools=tools, tool_choice=ToolChoice("function", "f")))
    assert [(c.index, c.call_id, c.name, c.arguments, c.last) for c in said if isinstance(c, CallDelta)] == [
        (0, "c1", "f", "", False), (0, "c1", "f", '{"a"', False), (0, "c1", "f", ":1}", False), (0, "c1", "f", "", True),
        (1, "c2", "g", "{}", False), (1, "c2", "g", "", True),
    ]  # fmt: skip
    assert said[-1].finish_reason == "tool_calls"
    sent = server.asked[0].json
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert sent["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert sent["messages"][-2]["tool_calls"][0]["id"] == "c0" and sent["messages"][-1]["tool_call_id"] == "c0"


async def test_every_call_stands_beside_those_made_with_it_and_before_its_result(make: Any) -> None:
    """OpenAI's API answers 400 unless each assistant message with tool_calls is followed by one result for every one of them
    (its reference: "must be followed by tool messages responding to each 'tool_call_id'")."""

    def call(name: str) -> Message:
        return Message("assistant", (), (ToolCall(name, "f", "{}"),))

    def result(name: str) -> Message:
        return Message("tool", (TextPart(f"of {name}"),), call_id=name)

    def said(role: Any, text: str) -> Message:
        return Message(role, (TextPart(text),))

    messages = (
        said("user", "Look."),
        said("assistant", "Let me see."), call("a"), call("b"), call("e"), result("a"), result("e"), said("assistant", "One."),
        said("user", "And?"), result("b"), call("c"), result("c"), call("d"),
        said("user", "Well?"), result("of nothing"),
    )  # fmt: skip
    async with FakeOpenAI([fake.good]) as server:
        await say(make(server), body("", messages=messages, tools=(Tool("f"),)))
    sent = server.asked[0].json["messages"]
    told = [(m["role"], m["content"], [c["id"] for c in m.get("tool_calls", ())] or m.get("tool_call_id")) for m in sent]
    assert [m for m in told if m[0] != "system"] == [
        ("user", "Look.", None),
        ("assistant", "Let me see.", ["a", "e"]), ("tool", "of a", "a"), ("tool", "of e", "e"),
        ("assistant", "One.", None), ("user", "And?", None),
        ("assistant", None, ["b"]), ("tool", "of b", "b"),  # late: it is what is to be answered now
        ("assistant", None, ["c"]), ("tool", "of c", "c"),
        ("assistant", None, ["d"]), ("tool", "(no result yet)", "d"),
        ("user", "Well?", None),
    ]  # fmt: skip


async def test_a_call_that_the_token_limit_cut_off_is_not_complete(make: Any) -> None:
    async def cut(c: fake.Connection) -> None:
        await c.head()
        await c.event(fake.delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a'}}]))
        await c.event(fake.delta(finish="length"))
        await c.event(b"[DONE]")

    async with FakeOpenAI([cut]) as server:
        said = await say(make(server), body("Hi", tools=(Tool("f"),)))
    assert said[-1].finish_reason == "length"
    assert [(c.arguments, c.last) for c in said if isinstance(c, CallDelta)] == [('{"a', False)]


@pytest.mark.parametrize(
    "fault",
    [
        fake.status(500),
        fake.status(429, extra="Retry-After: 0\r\n"),
        fake.drop_at_once,
        fake.garbage,
        fake.not_a_stream,
        fake.hang,
    ],
)
async def test_a_fault_before_anything_was_said_is_tried_once_more(make: Any, fault: Any) -> None:
    patience = 2.0 if fault is fake.hang else 30.0
    async with FakeOpenAI([fault, fake.good]) as server:
        said = await say(make(server, first_s=patience), body("Hi"))
    assert len(server.asked) == 2 and isinstance(said[-1], TextResult)
    async with FakeOpenAI([fault]) as server:
        with pytest.raises(StageFailed) as failed:
            await say(make(server, first_s=patience), body("Hi"))
    assert failed.value.retryable and len(server.asked) == 2
    assert "127.0.0.1" not in str(failed.value)


@pytest.mark.parametrize("fault", [fake.drop_after_one, fake.hang_after_two])
async def test_a_fault_in_mid_answer_fails_and_is_never_repeated(make: Any, fault: Any) -> None:
    said = []
    async with FakeOpenAI([fault]) as server:
        thinker = make(server, stall_s=1.0)
        with pytest.raises(StageFailed, match="thinker") as failed:
            async for output in thinker.run(Request(id="r", terminals=("text",)), body("Hi"), nothing()):
                said.append(output.data)  # noqa: PERF401 - what came before the failure counts
    assert len(server.asked) == 1 and said[0] == TextDelta("Hel") and failed.value.retryable


@pytest.mark.parametrize(
    ("code", "raised", "named"), [(400, Refused, "too long"), (401, StageFailed, "API key"), (404, StageFailed, "model")]
)
async def test_what_will_not_pass_is_not_tried_again(make: Any, code: int, raised: Any, named: str) -> None:
    async with FakeOpenAI([fake.status(code, {"error": {"message": "too long"}})]) as server:
        with pytest.raises(raised, match=named):
            await say(make(server), body("Hi"))
    assert len(server.asked) == 1


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_an_abort_hangs_up(make: Any, how: str) -> None:
    async with FakeOpenAI([fake.hang_after_two]) as server:
        outputs = make(server).run(Request(id="r", terminals=("text",)), body("Hi"), nothing())
        first = await anext(outputs)
        assert first.data == TextDelta("Hel")
        if how == "cancel":
            task = asyncio.ensure_future(collect(outputs))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await outputs.aclose()
        await asyncio.wait_for(server.hung_up.wait(), 5)


async def collect(outputs: Any) -> list[Any]:
    return [o async for o in outputs]


async def test_a_server_that_keeps_failing_is_left_alone(make: Any) -> None:
    async with FakeOpenAI([fake.status(500)]) as server:
        thinker = make(server, rest_s=60.0)
        for _ in range(4):
            with pytest.raises(StageFailed):
                await say(thinker, body("Hi"))
        assert len(server.asked) == 5
        with pytest.raises(StageFailed, match="left alone"):
            await say(thinker, body("Hi"))
        assert len(server.asked) == 5


def test_the_breaker_lets_one_try_after_its_rest() -> None:
    now = [0.0]
    breaker = Breaker(failures=2, rest_s=10.0, clock=lambda: now[0])
    breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()
    now[0] = 10.0
    assert breaker.allows() and not breaker.allows(), "one probe at a time"
    breaker.failed()
    assert not breaker.allows()
    now[0] = 20.0
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.allows() and breaker.allows()


async def test_audio_that_nobody_read_is_refused_by_name(make: Any) -> None:
    async with FakeOpenAI([fake.good]) as server:
        with pytest.raises(Refused, match="audio"):
            await say(make(server), body("", messages=(Message("user", (AudioPart(b"x"),)),)))
        said = await say(make(server), body("", messages=(Message("user", (AudioPart(b"x", transcript="Hi"),)),)))
    assert isinstance(said[-1], TextResult) and server.asked[0].json["messages"][-1]["content"] == "Hi"


async def test_a_prepare_asks_for_nothing(make: Any) -> None:
    async with FakeOpenAI([fake.good]) as server:
        asked = body("Hi")
        assert [o async for o in make(server).run(Request(id="r", kind="prepare"), asked, nothing())] == []
    assert not server.asked


async def test_neither_words_nor_the_key_reach_a_log(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ANTIPHON_THINKER_API_KEY", "secret-key")
    caplog.set_level(logging.DEBUG)
    async with FakeOpenAI([fake.good, fake.status(500)]) as server:
        thinker = make(server)
        await say(thinker, body("My password is xyzzy."))
        with pytest.raises(StageFailed):
            await say(thinker, body("My password is xyzzy."))
    assert "secret-key" not in caplog.text and "xyzzy" not in caplog.text


async def test_openais_own_key_is_for_openai_alone(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
    monkeypatch.delenv("ANTIPHON_THINKER_API_KEY", raising=False)
    async with FakeOpenAI([fake.good]) as server:
        await say(make(server), body("Hi"))
    assert "authorization" not in server.asked[0].headers
