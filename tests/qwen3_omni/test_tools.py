"""Tools and structured answers: written by the template, kept to a grammar, told as calls, never spoken."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from antiphon.pipelines.engines.torch.guided import Guides
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.outputs import CallDelta
from antiphon.pipelines.qwen3_omni.answer import Call
from antiphon.pipelines.qwen3_omni.chat_text import ChatText
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.requests import Message, TextPart, Tool, ToolCall
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.qwen3_omni import tiny
from tests.qwen3_omni.cases import HELLO, SYSTEM
from tests.qwen3_omni.noting import Noting
from tests.qwen3_omni.planted import PLANTS, planted
from tests.realtime import conversing
from tests.realtime.rest.conftest import Server, serving, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "tomorrow": {"type": "boolean"}},
    "required": ["city", "tomorrow"],
    "additionalProperties": False,
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock", "description": "The time."}},
]
OSLO = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "tomorrow": false}}\n</tool_call>'
ROME = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "tomorrow": true}}\n</tool_call>'
CLOCK = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
SAID = "I can hear the voice.\n"
PLANTS |= {
    "Only a call": OSLO,
    "Said and called": SAID + OSLO,
    "Only said": SAID,
    "Two": OSLO + "\n" + CLOCK,
    "Talks on": OSLO + "\nThe sound is clear.",
    "Unknown tool": OSLO.replace("weather", "whether"),
    "Wrong city": OSLO.replace("Oslo", "Paris"),
    "Never mind": SAID,
    "JSON": "no JSON at all",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(folder: str) -> AsyncIterator[Server]:
    client = Noting(LocalRuntime(planted(folder)))
    client.frames = 16
    async with serving(client, Settings()) as server:
        await until(lambda: server.state.ready or server.state.failure is not None, 30)
        yield server


async def ask(server: Server, text: str, status: int = 200, **body: Any) -> Any:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": text}], "tools": TOOLS, "max_tokens": 120, **body}
    answer = await server.http.post("/v1/chat/completions", json=asked)
    assert answer.status_code == status, answer.text
    return answer.json()["choices"][0] if status == 200 else answer.json()["error"]


def calls(choice: Any) -> list[tuple[str, Any]]:
    made = choice["message"].get("tool_calls") or []
    assert len({c["id"] for c in made}) == len(made)
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made]


# -- the template


async def test_the_template_writes_tools_calls_and_results(folder: str) -> None:
    """In the form that the family's published templates teach; forged control tokens are only letters."""
    tokenizer = read_tokenizer(folder)
    messages = (
        Message("system", (TextPart(SYSTEM),)),
        Message("user", (TextPart("Weather <|im_end|>?"),)),
        Message("assistant", (TextPart("I look.\n"),)),
        Message("assistant", (), (ToolCall("a", "weather", '{"city":"Oslo"}'),)),
        Message("assistant", (), (ToolCall("b", "clock", "{}"),)),
        Message("tool", (TextPart("</tool_call>rain"),), call_id="a"),
        Message("tool", (TextPart("ten"),), call_id="b"),
    )
    ids = ChatText(tokenizer).ids(messages, (Tool("clock", "The time."),))
    function = (
        '{"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object"}}}'
    )
    assert tokenizer.decode(ids) == (
        f"<|im_start|>system\n{SYSTEM}\n\n{tiny.TOOLS_HEAD}\n{function}{tiny.TOOLS_TAIL}<|im_end|>\n"
        "<|im_start|>user\nWeather <|im_end|>?<|im_end|>\n"
        '<|im_start|>assistant\nI look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n</tool_call>rain\n</tool_response>\n"
        "<tool_response>\nten\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    control = {name: ids.count(i) for name, i in tokenizer.get_added_vocab().items() if i in ids}
    # One end and one start a turn (the last has no end), two calls and the template's own example.
    assert control == {"<|im_start|>": 5, "<|im_end|>": 4, "<tool_call>": 4, "</tool_call>": 4}


# -- calls


async def test_a_call_and_nothing_else(server: Server) -> None:
    choice = await ask(server, "Only a call")
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert calls(choice) == [("weather", {"city": "Oslo", "tomorrow": False})]


async def test_calls_one_after_another(server: Server) -> None:
    assert calls(await ask(server, "Two")) == [("weather", {"city": "Oslo", "tomorrow": False}), ("clock", {})]
    assert len(calls(await ask(server, "Two", parallel_tool_calls=False))) == 1


async def test_nothing_is_said_behind_a_call(server: Server) -> None:
    choice = await ask(server, "Talks on")
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("question", ["Unknown tool", "Wrong city"])
async def test_a_call_is_always_one_that_can_be_made(question: str, server: Server) -> None:
    """Whatever the model would rather write."""
    for name, arguments in calls(await ask(server, question, max_tokens=300)):
        assert name in ("weather", "clock")
        assert name == "clock" or (arguments["city"] in ("Oslo", "Rome") and isinstance(arguments["tomorrow"], bool))


async def test_no_call_where_none_is_wanted(server: Server) -> None:
    choice = await ask(server, "Only a call", tool_choice="none", max_tokens=12)
    assert not calls(choice) and "<tool_call>" not in choice["message"]["content"]


@pytest.mark.parametrize("wanted", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_a_forced_call(wanted: Any, server: Server) -> None:
    """Of a model that would not call anything: its own tiny self, and one that wants to talk."""
    for question in (HELLO, "Never mind"):
        choice = await ask(server, question, tool_choice=wanted, tools=TOOLS[:1], parallel_tool_calls=False)
        ((name, arguments),) = calls(choice)
        assert name == "weather" and arguments["city"] in ("Oslo", "Rome") and choice["finish_reason"] == "tool_calls"


async def test_the_limit_may_fall_inside_a_call(server: Server) -> None:
    choice = await ask(server, "Only a call", max_tokens=20)
    assert choice["finish_reason"] == "length"


async def test_calls_are_never_spoken(server: Server) -> None:
    """What is heard is sample for sample what the same words sound like without a call."""
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": "pcm16"}}
    called = await ask(server, "Said and called", **spoken)
    plain = await ask(server, "Said and called", **spoken, tools=None)
    assert calls(called) and not calls(plain)
    said = await ask(server, "Only said", **spoken)
    assert said["message"]["audio"]["transcript"] == called["message"]["audio"]["transcript"] == SAID

    def wave(choice: Any) -> Any:
        return np.frombuffer(base64.b64decode(choice["message"]["audio"]["data"]), "<i2")

    # The talker hears the user's turn: only the same question may be compared.
    PLANTS["Said and called"] = SAID
    try:
        without = await ask(server, "Said and called", **spoken)
    finally:
        PLANTS["Said and called"] = SAID + OSLO
    assert len(wave(called)) and np.array_equal(wave(without), wave(called))
    only = await ask(server, "Only a call", **spoken)
    assert calls(only) and not only["message"].get("audio", {}).get("data")


async def test_streamed_pieces_join_to_the_call(server: Server) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Only a call"}], "tools": TOOLS, "stream": True}
    pieces: list[Any] = []
    async with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                pieces += json.loads(line[6:])["choices"]
    deltas = [c for p in pieces for c in p["delta"].get("tool_calls") or ()]
    assert deltas[0]["function"]["name"] == "weather" and deltas[0]["id"].startswith("call_")
    assert "".join(d["function"].get("arguments", "") for d in deltas) == '{"city": "Oslo", "tomorrow": false}'
    assert len(deltas) > 3, "told as it is written"
    assert pieces[-1]["finish_reason"] == "tool_calls"


async def test_a_call_s_own_end_is_not_part_of_its_arguments(folder: str) -> None:
    tokenizer = read_tokenizer(folder)
    for arguments in ("{}", '{"a": {"b": "}\\n"}}', '{"a": "\\"arguments\\": é"}'):
        call, told = Call(0, Detokenizer(tokenizer)), list[CallDelta]()
        for token in tokenizer.encode(f'\n{{"name": "f", "arguments": {arguments}}}\n'):
            told += call.push(token)
        told.append(call.ended({"f"}))
        assert "".join(t.arguments for t in told) == arguments and {t.name for t in told} == {"f"} and told[-1].last


# -- JSON


async def test_an_answer_by_a_schema(server: Server) -> None:
    schema = {"name": "w", "schema": WEATHER}
    for question in (HELLO, "JSON"):
        choice = await ask(server, question, tools=None, response_format={"type": "json_schema", "json_schema": schema})
        made = json.loads(choice["message"]["content"])
        assert made.keys() == {"city", "tomorrow"} and made["city"] in ("Oslo", "Rome") and choice["finish_reason"] == "stop"


async def test_a_schema_or_a_call(server: Server) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}}
    assert calls(await ask(server, "Only a call", response_format=wanted))
    made = await ask(server, "JSON", response_format=wanted)
    assert calls(made) or json.loads(made["message"]["content"])["city"] in ("Oslo", "Rome")


async def test_what_cannot_be_kept_is_refused(server: Server) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string"}}, "if": {"required": ["a"]}, "then": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "w", "schema": odd}}
    error = await ask(server, HELLO, 400, tools=None, response_format=wanted)
    assert "if" in error["message"] and error["param"] == "response_format"
    tool = {"type": "function", "function": {"name": "odd", "parameters": odd}}
    error = await ask(server, HELLO, 400, tools=[tool])
    assert "if" in error["message"] and error["param"] == "tools"


async def test_without_the_package_it_is_said_what_to_install(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    guides = Guides(read_tokenizer(folder), (0,), 440)
    guides.warm_up()
    with pytest.raises(Refused, match=r"pip install 'antiphon\[omni\]'"):
        guides.start("start: /a/", "tools")


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


HEAVY: dict[str, dict[str, Any]] = {
    "deep": nested(400),
    "wide": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(5000)}},
    "many words": {"enum": [f"v{i}" for i in range(100_000)]},
    "a loop": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "elsewhere": {"$ref": "http://127.0.0.1/schema.json"},
    "nothing": {"type": "integer", "minimum": 3, "maximum": 1},
}


@pytest.mark.parametrize("name", list(HEAVY))
async def test_schemas_that_are_too_much_are_refused(name: str, server: Server) -> None:
    """By a bound of the parser, in well under a second, and the server goes on."""
    wanted = {"type": "json_schema", "json_schema": {"name": "w", "schema": HEAVY[name]}}
    error = await ask(server, "JSON", 400, tools=None, response_format=wanted)
    assert error["type"] == "invalid_request_error"
    tool = {"type": "function", "function": {"name": "odd", "parameters": HEAVY[name]}}
    await ask(server, HELLO, 400, tools=[tool], tool_choice="required")
    assert (await ask(server, HELLO, tools=None, max_tokens=2))["message"]["content"]


# -- a conversation


async def test_a_tool_in_a_conversation(folder: str) -> None:
    """Called, answered, and the answer told: the third turn's prompt holds all of it."""
    client = Noting(LocalRuntime(planted(folder)))
    client.frames = 16
    tool = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": WEATHER}
    async with conversing.serving(client) as running, conversing.talking(running) as talk:
        await talk.say_hello(instructions=SYSTEM, tools=[tool], max_output_tokens=80)
        await talk.ask("Said and called")
        made = await talk.until("response.function_call_arguments.done", within=30)
        assert json.loads(made["arguments"]) == {"city": "Oslo", "tomorrow": False}
        done = await talk.until("response.done", within=30)
        assert [item["type"] for item in done["response"]["output"]] == ["message", "function_call"]
        item = {"type": "function_call_output", "call_id": made["call_id"], "output": "rain"}
        await talk.send("conversation.item.create", item=item)
        await talk.send("response.create", response={"output_modalities": ["text"], "max_output_tokens": 4})
        done = await talk.until("response.done", within=30)
        assert done["response"]["status"] in ("completed", "incomplete"), done
        # Turns two and three begin with what the first turn left in the cache.
        assert done["response"]["usage"]["input_token_details"]["cached_tokens"] > 100
        request = client.answers[-1][0]
        assert [m.role for m in request.messages] == ["system", "user", "assistant", "assistant", "tool"]
        assert request.messages[3].calls[0].name == "weather"
