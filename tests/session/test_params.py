"""What a response.create may say, in newer and older words, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session.features import Features, rough_tokens
from antiphon.session.request import Call, CallOutput, Clip, Heard, Image, Message, Text

from .talk import Talk, of

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def created(params: Any, **features: Any) -> tuple[Talk, list[dict[str, Any]]]:
    talk = Talk(Features(**features))
    return talk, talk.command("response.create", response=params)


def test_everything_that_it_may_change() -> None:
    params = {
        "instructions": "x",
        "output_modalities": ["text"],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False,
        "max_output_tokens": "inf",
        "temperature": 0.2,
        "audio": {"output": {"voice": {"id": "v1"}, "format": {"type": "audio/pcm", "rate": 24_000}}},
        "metadata": {"a": "b"},
        "prompt": {"id": "p"},
        "reasoning": {"effort": "low"},
        "nonsense": 1,
    }
    talk, _ = created(params)
    request = talk.request
    assert (request.instructions, request.modality, request.parallel_tool_calls) == ("x", "text", False)
    assert request.tool_choice == '{"name":"look","type":"function"}' and request.temperature == 0.2
    assert request.voice == "v1" and request.max_tokens is None


def test_older_names() -> None:
    older = {"modalities": ["text", "audio"], "voice": "ash", "max_response_output_tokens": 7, "temperature": 0.8}
    talk, _ = created({**older, "output_audio_format": "pcm16"})
    assert (talk.request.modality, talk.request.voice, talk.request.max_tokens) == ("audio", "ash", 7)


def test_a_tool_named_before_it_is_declared_leaves_the_model_free() -> None:
    talk, _ = created({"tool_choice": {"type": "function", "name": "later"}})
    assert talk.request.tool_choice == '"auto"'
    talk, _ = created({"tool_choice": "required"})  # the model was asked for a call of nothing, and failed
    assert talk.request.tool_choice == '"auto"'
    talk, _ = created({"tool_choice": "required", "tools": [TOOL]})
    assert talk.request.tool_choice == '"required"'


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        (3, "invalid_type", "response"),
        ({"conversation": "both"}, "invalid_value", "response.conversation"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "object_above_max_properties", "response.metadata"),
        ({"metadata": {"a": 1}}, "invalid_type", "response.metadata.a"),
        ({"temperature": 9}, "decimal_above_max_value", "response.temperature"),
        ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "response.input[0].id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_retrieve_invalid_item_id", "response.input[0].id"),
        ({"input": [{"type": "message"}]}, "missing_required_parameter", "response.input[0].role"),
        ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, "unsupported_value", "response.audio.output.format"),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, "unsupported_tool", "response.tools[0].type"),
    ],
)
def test_what_is_refused(params: Any, code: str, param: str) -> None:
    talk, events = created(params)
    assert (events[0]["error"]["code"], events[0]["error"]["param"]) == (code, param)
    assert not talk.check.gens


def test_a_voiceless_pipeline_refuses_audio_by_name() -> None:
    talk, events = created({"output_modalities": ["audio"]}, outputs=("text",))
    assert "audio" in events[0]["error"]["message"]
    assert of(talk.command("response.create"), "response.created")[0]["response"]["output_modalities"] == ["text"]


def test_the_voice_is_locked_by_the_first_audio_but_not_for_a_response_aside() -> None:
    talk, _ = created({})
    talk.make(talk.gen(), "Hello.", 0.2)
    talk.end(talk.gen())
    talk.wait(1)
    error = talk.command("response.create", response={"voice": "other"})[0]["error"]
    assert error["code"] == "cannot_update_voice"
    error = talk.command("session.update", session={"type": "realtime", "audio": {"output": {"voice": "other"}}})[0]
    assert error["error"]["param"] == "session.audio.output.voice"
    assert of(talk.command("response.create", response={"voice": "other", "conversation": "none"}), "response.created")


def test_about_how_many_tokens() -> None:
    """Four characters or a tenth of a second to a token, and four for the frame."""
    assert rough_tokens(Message("user", (Text("x" * 40), Heard((0, 16_000)), Image("u")))) == 4 + 10 + 10 + 256
    assert rough_tokens(Call("c", "f" * 4, "x" * 4)) == 8 and rough_tokens(CallOutput("c", "x" * 8)) == 8
    assert rough_tokens(Message("user", (Heard((16_000, 48_000)),)), speech=13) == 4 + 26
    second = "A" * (48_000 * 4 // 3)
    assert rough_tokens(Message("user", (Clip(second, ("audio/pcm", 24_000)),))) == 14
    assert rough_tokens(Message("user", (Clip("A" * (8_000 * 4 // 3 + 2), ("audio/pcmu", 8_000)),))) == 14


def test_a_talk_in_another_script_is_not_taken_for_a_quarter_of_its_length() -> None:
    """Tokens as Qwen2.5's tokenizer counted them: a context thought half empty would overflow in the model."""
    for text, tokens in (
        ("今天天气很好，我们一起去公园散步吧。春天来了，花都开了，孩子们在草地上玩耍，老人们在树下聊天。", 30),
        ("今日は天気がいいので、公園へ散歩に行きましょう。春が来て、花が咲き、子供たちは芝生で遊んでいます。", 35),
        ("Сегодня хорошая погода, поэтому мы пойдём гулять в парк. Наступила весна, и все цветы уже распустились.", 39),
        (
            "The quick brown fox jumps over the lazy dog, and then it goes home to sleep in its warm little den by the river.",
            26,
        ),
    ):
        assert tokens <= rough_tokens(Message("user", (Text(text),))) <= 1.5 * tokens
    weather = '{"temperature": 18, "sky": "sunny", "wind": {"speed": 3.2, "dir": "NW"}}' * 3
    assert 93 <= rough_tokens(CallOutput("c", weather)) <= 1.5 * 93


@pytest.mark.parametrize("key", ["tracing", "prompt", "reasoning", "tools"])
def test_what_is_kept_as_it_is_may_not_be_nested_beyond_what_copying_can_follow(key: str) -> None:
    """500 levels passed the check and broke the conversation at the next session.update."""
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    value = [{"type": "function", "name": "f", "parameters": deep}] if key == "tools" else deep
    talk = Talk()
    (error,) = talk.update(**{key: value})
    path = f"session.{key}[0].parameters" if key == "tools" else f"session.{key}"
    assert (error["error"]["code"], error["error"]["param"]) == ("invalid_value", path)
    assert [e["type"] for e in talk.update()] == ["session.updated"]
