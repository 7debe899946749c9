"""What the small model is told: the spoken style when a request brings no instructions, and its own tool format.

The short examples cost nothing after the first request: their prefix is decoded once and copied. They were chosen on the
tuning half of ``benchmarks/answers``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, TextPart, Tool, ToolCall

SPOKEN = "You are a helpful voice assistant. Answer in one short sentence."
WRITTEN = "You are a helpful assistant."
SPOKEN_HINT = "You are speaking aloud: answer in one or two short sentences, without lists or formatting."
EXAMPLES = (
    ("Hi there!", "Hello! How can I help you?"),
    ("How do you say good night in Italian?", "Good night in Italian is buonanotte."),
    ("My sister is called Julia.", "That's a nice name! How can I help you?"),
    ("What is my sister called?", "Your sister is called Julia."),
    ("What's eight plus three?", "Eight plus three is eleven."),
    ("Please say good luck.", "Good luck!"),
    ("How do I make toast?", "Put a slice of bread in the toaster and wait until it is golden brown."),
    ("Thanks!", "You're welcome!"),
)

LOOKING = "Let me look."
TELL_RESULT = "Now answer me with that, in one short sentence."
CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"
NAME_BEGIN = '\n{"name": "'
ARGUMENTS_BEGIN = '", "arguments": '
AFTER_ARGUMENTS = "}\n"
NEXT_CALL = "\n" + CALL_BEGIN
_TOOLS_HEAD = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""The format that Qwen2.5's own chat template teaches (and Hermes before it); other models read it as plain words."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control token of the template, by its text; a model without it reads the letters."""

    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One rendered message. ``text`` pieces are never parsed for control tokens."""

    role: str
    pieces: tuple[str | Control, ...]


def _said(message: Message) -> str:
    texts = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, AudioPart) and part.transcript is not None:
            texts.append(part.transcript)
        else:
            kind = {"AudioPart": "audio that was not transcribed", "ImagePart": "images", "VideoPart": "video"}
            raise Refused(
                f"the model of this pipeline does not read {kind[type(part).__name__]}",
                code="unsupported_value",
                param="messages",
            )
    return "\n".join(t for t in texts if t)


def _call_pieces(call: ToolCall) -> tuple[str | Control, ...]:
    body = NAME_BEGIN + call.name + ARGUMENTS_BEGIN + call.arguments + AFTER_ARGUMENTS
    return (Control(CALL_BEGIN), body, Control(CALL_END))


def _turn(message: Message) -> Turn:
    text = _said(message)
    if message.role == "tool":
        return Turn("user", (f"<tool_response>\n{text}\n</tool_response>",))
    if message.role == "assistant" and message.calls:
        pieces: list[str | Control] = [text] if text else []
        for call in message.calls:
            if pieces:
                pieces.append("\n")
            pieces += _call_pieces(call)
        return Turn("assistant", tuple(pieces))
    return Turn("system" if message.role == "developer" else message.role, (text,))


def _in_words(messages: Sequence[Message]) -> list[Turn]:
    """For a turn that is answered in words: calls and their results told in words too, for a small model that sees a call
    in the conversation writes another, and repeats a result with its tags."""
    names = {call.call_id: call.name for message in messages for call in message.calls}
    turns = []
    for message in messages:
        if message.role == "tool":
            name = names.get(message.call_id, "the tool").replace("_", " ")
            turns.append(Turn("user", (f"The answer of {name}: {_said(message)}\n{TELL_RESULT}",)))
        elif message.role == "assistant" and message.calls:
            turns.append(Turn("assistant", (_said(message) or LOOKING,)))
        else:
            turns.append(_turn(message))
    return turns


def _tool_line(tool: Tool) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return "\n" + json.dumps({"type": "function", "function": function}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Script:
    """``head`` is always kept: instructions and examples. ``turns`` may lose their oldest."""

    head: tuple[Turn, ...]
    turns: tuple[Turn, ...]


def script(body: GenerateRequest, *, spoken: bool, tools: Sequence[Tool] = ()) -> Script:
    """The request as turns. ``tools``: offered in the model's own format. Raises Refused for media it cannot read."""
    messages = list(body.messages)
    instructions: list[str] = []
    while messages and messages[0].role in ("system", "developer"):
        instructions.append(_said(messages.pop(0)))
    told = "\n\n".join(i for i in instructions if i.strip())
    head: list[Turn] = []
    if tools:
        system = (told or WRITTEN) + _TOOLS_HEAD + "".join(_tool_line(t) for t in tools) + _TOOLS_TAIL
    elif told:
        system = f"{told}\n{SPOKEN_HINT}" if spoken else told
    else:
        system = SPOKEN if spoken else WRITTEN
    head.append(Turn("system", (system,)))
    if spoken and not told and not tools:
        for asked, answered in EXAMPLES:
            head += [Turn("user", (asked,)), Turn("assistant", (answered,))]
    return Script(tuple(head), tuple([_turn(m) for m in messages] if tools else _in_words(messages)))


def default_head() -> tuple[Turn, ...]:
    """What every spoken request without instructions begins with."""
    empty = GenerateRequest(id="", task="chat", terminals=())
    return script(empty, spoken=True).head
