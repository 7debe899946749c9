"""Messages as the checkpoint's own chat template writes them: turns, tools, calls and their results, to token ids.

What a user, a model or a tool has written is never read as one of the template's control tokens: it can neither end a turn nor
add a placeholder. Where it holds the letters of one, they are cut apart before the tokenizer looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.requests import AudioPart, ImagePart, Message, TextPart, Tool, VideoPart

KINDS = {AudioPart: "audio", ImagePart: "image", VideoPart: "video"}
_CUT = "\ue0a7"
"""Stands inside letters that must not be read as a control token, until the text has been cut there."""


class ChatText:
    """One checkpoint's template and tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        marks = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks)))

    def ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Ids up to where the answer begins, one placeholder a medium. Raises Refused by the message's name."""
        if not messages:
            raise Refused("messages is empty", param="messages")
        turns: list[dict[str, Any]] = []
        for i, message in enumerate(messages):
            turn = self._turn(f"messages[{i}]", message)
            if message.calls and turns and turns[-1]["role"] == "assistant" and not message.parts:
                # A conversation keeps what was said and each call as items of their own; to the template they are one turn.
                said = turns[-1]
                said["content"] = said["content"].rstrip("\n")
                said["tool_calls"] = [*said.get("tool_calls", ()), *turn["tool_calls"]]
            else:
                turns.append(turn)
        offered: dict[str, Any] = {"tools": [self._tool(tool) for tool in tools]} if tools else {}
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **offered)
        except (TemplateError, RecursionError) as error:
            raise Refused(f"the model's chat template refuses these messages: {error}", param="messages") from error
        return self._tokens(text)

    def spoken(self, text: str) -> list[int]:
        """The ids of a text by itself, in no turn."""
        return self._tokens(self._plain(text))

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in text.split(_CUT):
            ids += self._tokenizer(piece, add_special_tokens=False)["input_ids"]
        return ids

    def _turn(self, name: str, message: Message) -> dict[str, Any]:
        role = "system" if message.role == "developer" else message.role
        content: list[dict[str, str]] = []
        for p, part in enumerate(message.parts):
            if isinstance(part, TextPart):
                _write(content, part.text)
            elif role == "user":
                content.append({"type": KINDS[type(part)]})
            elif isinstance(part, AudioPart) and part.transcript is not None:
                _write(content, part.transcript)
            else:
                where = part.name or f"{name}.parts[{p}]"
                text = f"{where}: {KINDS[type(part)]} is only read in the user's turns"
                raise Refused(text, code="unsupported_value", param=part.name or "messages")
        for piece in content:
            if piece["type"] == "text":
                piece["text"] = self._plain(piece["text"])
        turn: dict[str, Any] = {"role": role, "content": content}
        if all(piece["type"] == "text" for piece in content):
            turn["content"] = "".join(piece["text"] for piece in content)
        if message.calls:
            turn["tool_calls"] = [
                {"type": "function", "function": {"name": self._plain(c.name), "arguments": self._arguments(c.arguments)}}
                for c in message.calls
            ]
        return turn

    def _arguments(self, arguments: str) -> Any:
        """As an object, which every template writes alike; what is none stays as it was written."""
        try:
            held = json.loads(arguments or "{}")
            return self._plain_json(held) if isinstance(held, dict) else self._plain(arguments)
        except (ValueError, RecursionError):
            return self._plain(arguments)

    def _tool(self, tool: Tool) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters or {"type": "object"}}
        try:
            made: dict[str, Any] = self._plain_json({"type": "function", "function": function})
        except RecursionError:
            raise Refused(
                f"tools: the schema of {tool.name} is nested too deeply", code="invalid_schema", param="tools"
            ) from None
        return made

    def _plain(self, text: str) -> str:
        """``text`` with every control token in it cut after its first letter."""
        text = text.replace(_CUT, "")
        return self._marks.sub(lambda found: found[0][0] + _CUT + found[0][1:], text)

    def _plain_json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._plain(value)
        if isinstance(value, dict):
            return {self._plain(str(key)): self._plain_json(held) for key, held in value.items()}
        if isinstance(value, list):
            return [self._plain_json(held) for held in value]
        return value


def _write(content: list[dict[str, str]], text: str) -> None:
    """One more text. The template writes it straight behind the one before: two harmless halves would be a control token."""
    if content and content[-1]["type"] == "text":
        content[-1]["text"] += text
    else:
        content.append({"type": "text", "text": text})
