"""Tools and JSON with SGLang as the Thinker: what it is asked to keep to, and what is made of what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.outputs import CallDelta, TextDelta
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.structural import constraint, forced
from antiphon.pipelines.requests import GenerateRequest, ResponseFormat, Sampling, Tool, ToolChoice
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni import tiny
from tests.qwen3_omni.fake_sglang import FakeSglang
from tests.qwen3_omni.oracle import Oracle
from tests.qwen3_omni.test_tools import CLOCK, OSLO, ROME, SAID, WEATHER

Ask = Callable[..., GenerateRequest]
TOOLS = (Tool("weather", "Tells it.", WEATHER), Tool("clock", "The time."))
REQUIRED, NONE = ToolChoice("required"), ToolChoice("none")
JSON = '{"city": "Oslo",\n  "tomorrow": false}'
SCHEMA = ResponseFormat("json_schema", WEATHER)


class Told:
    def __init__(self) -> None:
        self.text = self.reason = ""
        self.calls: dict[str, str] = {}
        self.sent: dict[str, Any] = {}


async def answered(
    folder: str, ask: Ask, oracle: Oracle, text: str, *, tokens: int = 200, terminals: tuple[str, ...] = ("text",), **asked: Any
) -> Told:
    fake = FakeSglang([*oracle.tok.encode(text), oracle.model.config.im_end_token_id])
    told = Told()
    async with fake.serve() as url, Client(LocalRuntime(build(folder, thinker=f"openai:{url}#omni"))) as client:
        async for event in client.generate(ask("text", terminals=terminals, sampling=Sampling(max_tokens=tokens), **asked)):
            if isinstance(event.data, TextDelta):
                told.text += event.data.text
            elif isinstance(event.data, CallDelta):
                told.calls[event.data.name] = told.calls.get(event.data.name, "") + event.data.arguments
            elif event.last and event.terminal == "text":
                told.reason = event.data.finish_reason
    told.sent = fake.bodies[0]
    return told


async def test_a_call_and_what_was_said_before_it(folder: str, ask: Ask, oracle: Oracle) -> None:
    told = await answered(folder, ask, oracle, f"{SAID}{OSLO}\n{CLOCK}", tools=TOOLS)
    assert (told.text, told.reason) == (SAID, "tool_calls")
    assert told.calls == {"weather": '{"city": "Oslo", "tomorrow": false}', "clock": "{}"}
    assert "# Tools" in oracle.tok.decode(told.sent["input_ids"])
    form = json.loads(told.sent["sampling_params"]["structural_tag"])["format"]
    assert form["triggers"] == ["<tool_call>"] and not form["stop_after_first"]
    assert form["tags"][0]["begin"] == '<tool_call>\n{"name": "weather", "arguments": '
    assert form["tags"][0]["content"] == {"type": "json_schema", "json_schema": WEATHER}
    assert form["tags"][0]["end"] == "}\n</tool_call>"
    one = await answered(folder, ask, oracle, f"{OSLO}\n{CLOCK}", tools=TOOLS, parallel_tool_calls=False)
    assert one.calls.keys() == {"weather"} and one.reason == "tool_calls"
    assert json.loads(one.sent["sampling_params"]["structural_tag"])["format"]["stop_after_first"]


@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice("function", "weather")])
async def test_a_forced_call_is_begun_in_the_prompt(choice: ToolChoice, folder: str, ask: Ask, oracle: Oracle) -> None:
    begun = ROME.removeprefix("<tool_call>")
    told = await answered(folder, ask, oracle, begun, tools=TOOLS, tool_choice=choice)
    assert told.calls == {"weather": '{"city": "Rome", "tomorrow": true}'} and told.reason == "tool_calls"
    sent = told.sent["sampling_params"]
    assert told.sent["input_ids"][-1] == oracle.tok.convert_tokens_to_ids("<tool_call>") and sent["max_new_tokens"] == 199
    tags = json.loads(sent["structural_tag"])["format"]["elements"]
    assert [tag["begin"] for tag in tags] == [
        f'\n{{"name": "{tool.name}", "arguments": ' for tool in TOOLS if choice.name in ("", tool.name)
    ]


async def test_a_call_of_one_token_is_cut_without_the_server(folder: str, ask: Ask) -> None:
    config = build(folder, thinker="openai:http://127.0.0.1:9/v1#omni")
    async with Client(LocalRuntime(config)) as client:
        body = ask("text", terminals=("text",), tools=TOOLS, tool_choice=REQUIRED, sampling=Sampling(max_tokens=1))
        ends = [event.data.finish_reason async for event in client.generate(body) if event.last]
    assert ends == ["length"]


async def test_no_call_where_none_is_wanted(folder: str, ask: Ask, oracle: Oracle) -> None:
    told = await answered(folder, ask, oracle, SAID, tools=TOOLS, tool_choice=NONE)
    assert told.text == SAID and not told.calls
    sent = told.sent["sampling_params"]
    assert sent["logit_bias"] == {str(oracle.tok.convert_tokens_to_ids("<tool_call>")): -1000.0}
    assert "structural_tag" not in sent and "# Tools" not in oracle.tok.decode(told.sent["input_ids"])


async def test_json(folder: str, ask: Ask, oracle: Oracle) -> None:
    told = await answered(folder, ask, oracle, JSON, response_format=SCHEMA)
    assert told.text == JSON and json.loads(told.sent["sampling_params"]["json_schema"]) == WEATHER
    told = await answered(folder, ask, oracle, "{}", response_format=ResponseFormat("json_object"))
    assert json.loads(told.sent["sampling_params"]["json_schema"]) == {"type": "object"}
    for text in (JSON, OSLO):
        told = await answered(folder, ask, oracle, text, response_format=SCHEMA, tools=TOOLS)
        assert bool(told.calls) == (text == OSLO)
        elements = json.loads(told.sent["sampling_params"]["structural_tag"])["format"]["elements"]
        assert [element["type"] for element in elements] == ["json_schema", "tag", "tag"]


BROKEN = {
    "no name": OSLO.replace('"weather"', '"\\u12"'),
    "no such tool": OSLO.replace("weather", "whether"),
    "no JSON": OSLO.replace("false", "perhaps"),
    "cut": OSLO.removesuffix("</tool_call>"),
}


@pytest.mark.parametrize("name", list(BROKEN))
async def test_a_call_that_cannot_be_made_is_none(name: str, folder: str, ask: Ask, oracle: Oracle) -> None:
    """Of a server that does not keep to what it was given."""
    with pytest.raises(StageFailed, match="wrote a call that"):
        await answered(folder, ask, oracle, BROKEN[name], tools=TOOLS)


async def test_a_call_at_the_limit_is_cut(folder: str, ask: Ask, oracle: Oracle) -> None:
    told = await answered(folder, ask, oracle, OSLO, tools=TOOLS, tokens=30)
    assert told.reason == "length" and '{"city": "Oslo", "tomorrow": false}'.startswith(told.calls["weather"])


async def test_a_schema_that_cannot_be_kept_is_refused_by_its_keyword(folder: str, ask: Ask, oracle: Oracle) -> None:
    odd = {"type": "object", "if": {"required": ["a"]}, "then": False}
    with pytest.raises(Refused, match="if") as caught:
        await answered(folder, ask, oracle, "", response_format=ResponseFormat("json_schema", odd))
    assert caught.value.param == "response_format"
    with pytest.raises(Refused, match="if") as caught:
        await answered(folder, ask, oracle, "", tools=(Tool("odd", "", odd),))
    assert caught.value.param == "tools"


ASKED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "tools": ({"tools": TOOLS}, [SAID, SAID + OSLO, f"{OSLO}\n{CLOCK}"], [OSLO.replace("Oslo", "Paris"), "<tool_call>\n{}"]),
    "one call": ({"tools": TOOLS, "parallel_tool_calls": False}, [SAID, OSLO], [f"{OSLO}\n{CLOCK}"]),
    "forced": ({"tools": TOOLS, "tool_choice": REQUIRED}, [OSLO, CLOCK], ["<tool_call>hello", OSLO + "\n"]),
    "JSON": ({"response_format": SCHEMA}, [JSON], [SAID, JSON.replace("Oslo", "Paris"), JSON[:-1]]),
    "any JSON": ({"response_format": ResponseFormat("json_object")}, [JSON, "{}"], ["[]", "1"]),
    "JSON or a call": ({"response_format": SCHEMA, "tools": TOOLS}, [JSON, OSLO], [SAID, "{}"]),
}


@pytest.mark.parametrize("name", list(ASKED))
def test_what_xgrammar_makes_of_it(name: str, ask: Ask) -> None:
    """SGLang's usual backend, where it is installed (0.1.32 in SGLang 0.5.10, 0.2.7 in 0.5.23)."""
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar comes with SGLang")
    tokenizer = tiny.tokenizer()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=440, stop_token_ids=[end])
    asked, kept, not_kept = ASKED[name]
    body = ask("text", **asked)
    made = constraint(body, TOOLS if body.tools else ())
    compiler = xgrammar.GrammarCompiler(info)
    if "json_schema" in made:
        grammar = compiler.compile_json_schema(made["json_schema"], any_whitespace=True)
    else:
        grammar = compiler.compile_structural_tag(made["structural_tag"])
    for text in (*kept, *not_kept):
        matcher = xgrammar.GrammarMatcher(grammar)
        ids = [*tokenizer.encode(text), end][1 if forced(body) else 0 :]
        assert all(map(matcher.accept_token, ids)) == (text in kept), text
