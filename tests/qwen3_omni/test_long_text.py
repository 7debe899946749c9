"""Text that cannot fit into the model's context is refused before it is read: reading it would hold up everybody."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.chat_text import ChatText
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.prompt import PromptWriter
from antiphon.pipelines.requests import Message, TextPart, Tool, ToolCall

CONTEXT = 4096
LONGEST = 16  # "<|vision_start|>", of the tiny tokenizer
ENOUGH = "word " * (CONTEXT * LONGEST // 5 + 1)


def user(*texts: str) -> Message:
    return Message(role="user", parts=tuple(map(TextPart, texts)))


LONG: dict[str, tuple[list[Message], list[Tool]]] = {
    "one text": ([user(ENOUGH)], []),
    "many texts": ([user(*[ENOUGH[:1000]] * 67)], []),
    "many turns": ([user("")] * CONTEXT, []),
    "arguments": ([user("Hi"), Message(role="assistant", calls=(ToolCall("c", "f", ENOUGH.replace(" ", "")),) * 2)], []),
    "blanks inside arguments": (
        [user("Hi"), Message(role="assistant", calls=(ToolCall("c", "f", '{"a": "' + " " * CONTEXT * LONGEST + '"}'),))],
        [],
    ),
    "a description": ([user("Hi")], [Tool("f", ENOUGH)]),
    "a schema": ([user("Hi")], [Tool("f", "", {"type": "object", "description": ENOUGH})]),
}


@pytest.fixture(scope="module")
def writer(folder: str) -> PromptWriter:
    return PromptWriter(model.read_config(folder), read_tokenizer(folder))


@pytest.mark.parametrize("name", list(LONG))
def test_what_cannot_fit_is_not_read(name: str, writer: PromptWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(ChatText, "ids", read)
    messages, tools = LONG[name]
    with pytest.raises(Refused, match=rf"maximum context length is {CONTEXT} tokens; the prompt has at least \d+"):
        writer.ids(messages, tools)


def test_what_may_fit_is_read(writer: PromptWriter) -> None:
    """No text is refused that the longest tokens could write, nor blanks that the template leaves out."""
    assert len(writer.ids([user("<|vision_start|>"[:8] * 100)])) > 100
    spread = ToolCall("c", "f", "{" + " " * CONTEXT * LONGEST + "}")
    answered = Message(role="tool", parts=(TextPart("1"),), call_id="c")
    assert len(writer.ids([user("Hi"), Message(role="assistant", calls=(spread,)), answered])) < 200
