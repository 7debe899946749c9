"""Server-sent events of a chat completion -> TextDelta, CallDelta and one TextResult."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any, Literal

from antiphon.pipelines.engines.openai.server import Trouble
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult, Usage

_FINISH: dict[str, Literal["stop", "length", "tool_calls"]] = {
    "length": "length", "tool_calls": "tool_calls", "function_call": "tool_calls",
}  # fmt: skip


async def events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """The JSON of each ``data:`` line until ``[DONE]``. Raises Trouble for anything that is no such stream."""
    async for line in lines:
        field, _, value = line.partition(":")
        if field != "data":
            if line and field not in ("", "event", "id", "retry"):
                raise Trouble("sent something that is no event stream")
            continue
        if value.strip() == "[DONE]":
            return
        try:
            event = json.loads(value)
        except ValueError as error:
            raise Trouble("sent an event that is no JSON") from error
        if not isinstance(event, dict):
            raise Trouble("sent an event that is no object")
        if "error" in event:
            raise Trouble("reported an error in the middle of its answer")
        yield event


class ChatStream:
    """Feed it events; ``finish`` gives the end. Raises Trouble for a shape that is no chat completion."""

    def __init__(self) -> None:
        self._finish: str | None = None
        self._usage = Usage()
        self._calls: dict[int, tuple[str, str]] = {}
        self._open: int | None = None

    def feed(self, event: dict[str, Any]) -> list[TextDelta | CallDelta]:
        try:
            if event.get("usage"):
                self._usage = _usage(event["usage"])
            said: list[TextDelta | CallDelta] = []
            for choice in event.get("choices") or ():
                delta = choice.get("delta") or {}
                if delta.get("content"):
                    said.append(TextDelta(str(delta["content"])))
                for call in delta.get("tool_calls") or ():
                    said += self._call(call)
                self._finish = choice.get("finish_reason") or self._finish
            return said
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise Trouble("sent an event that is no chat completion") from error

    def finish(self) -> list[CallDelta | TextResult]:
        if self._finish is None:
            raise Trouble("broke off in the middle of its answer")
        reason = _FINISH.get(self._finish, "stop")
        if reason == "length":  # in the middle of a call, perhaps: it is not complete
            return [TextResult(reason, self._usage)]
        # Some servers say "stop" after tool calls.
        return [*self._close_call(), TextResult("tool_calls" if self._calls else reason, self._usage)]

    def _call(self, call: dict[str, Any]) -> list[CallDelta]:
        function = call.get("function") or {}
        index = call.get("index")
        if index is None:  # whole calls without a number
            index = len(self._calls) if call.get("id") or function.get("name") else max(self._calls, default=0)
        index = int(index)
        said: list[CallDelta] = []
        if index not in self._calls:
            said += self._close_call()
            self._calls[index] = (str(call.get("id") or f"call_{secrets.token_hex(12)}"), str(function.get("name") or ""))
            self._open = index
        call_id, name = self._calls[index]
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # Ollama's own shape
            arguments = json.dumps(arguments, ensure_ascii=False)
        said.append(CallDelta(index, call_id, name, arguments, tokens=1))
        return said

    def _close_call(self) -> list[CallDelta]:
        if self._open is None:
            return []
        call_id, name = self._calls[self._open]
        index, self._open = self._open, None
        return [CallDelta(index, call_id, name, "", last=True)]


def _usage(given: dict[str, Any]) -> Usage:
    details = given.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=int(given.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        completion_tokens=int(given.get("completion_tokens") or 0),
    )
