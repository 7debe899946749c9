"""GenerateRequest -> the JSON body of POST /chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.prompts import SPOKEN_HINT
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, TextPart

NO_RESULT = "(no result yet)"
"""Stands for the result of a tool that is still at work, or was interrupted: without one the API refuses the whole request."""


def _text(message: Message) -> str:
    texts = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, AudioPart) and part.transcript is not None:
            texts.append(part.transcript)
        else:
            raise Refused(
                f"a remote thinker is sent text only, not {type(part).__name__.removesuffix('Part').lower()}",
                code="unsupported_value",
                param="messages",
            )
    return "\n".join(texts)


def _message(message: Message) -> dict[str, Any]:
    # "developer" is OpenAI's own later name; the other servers know "system".
    made: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": _text(message)}
    if message.calls:
        made["tool_calls"] = [
            {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in message.calls
        ]
        made["content"] = made["content"] or None
    if message.role == "tool":
        made["tool_call_id"] = message.call_id
    return made


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As the API demands them: what was said and called in one go is one message, and behind it stands the result of every
    call. A conversation keeps each as an item of its own, and results come late or never; a call whose result comes after
    something else was said is told where its result is, so that this is what is to be answered."""
    turns: list[dict[str, Any]] = []
    caller: dict[str, dict[str, Any]] = {}  # the turn that made each call
    results: dict[str, dict[str, Any]] = {}
    calling = False  # the last turn is the assistant's, and no result has come since
    for message in messages:
        made = _message(message)
        if message.role == "tool":
            turn, calling = caller.get(message.call_id), False
            if turn is None:
                continue  # its call is gone
            if turn is not turns[-1]:
                late = next(call for call in turn["tool_calls"] if call["id"] == message.call_id)
                turn["tool_calls"].remove(late)
                caller[message.call_id] = {"role": "assistant", "content": None, "tool_calls": [late]}
                turns.append(caller[message.call_id])
            results[message.call_id] = made
            continue
        if calling and message.calls and not made["content"]:
            turns[-1].setdefault("tool_calls", []).extend(made["tool_calls"])
        else:
            turns.append(made)
        caller.update((call.call_id, turns[-1]) for call in message.calls)
        calling = message.role == "assistant"
    ordered = []
    for turn in turns:
        calls = turn.get("tool_calls", ())
        if calls or turn["content"] is not None:
            ordered.append(turn if calls else {name: turn[name] for name in ("role", "content")})
        for call in calls:
            none_yet = {"role": "tool", "content": NO_RESULT, "tool_call_id": call["id"]}
            ordered.append(results.get(call["id"], none_yet))
    return ordered


def chat_payload(body: GenerateRequest, model: str, *, spoken: bool) -> dict[str, Any]:
    """``spoken``: without instructions of the client the model is told that it is heard, not read. May raise Refused."""
    messages = _messages(body.messages)
    if spoken and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": SPOKEN_HINT})
    payload: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    asked = body.thinking
    for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "repetition_penalty"):
        if (value := getattr(asked, name)) is not None:
            payload[name] = value
    if asked.stop:
        payload["stop"] = list(asked.stop)
    if body.tools:
        payload["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
            for t in body.tools
        ]
        choice = body.tool_choice
        forced = {"type": "function", "function": {"name": choice.name}}
        payload["tool_choice"] = forced if choice.mode == "function" else choice.mode
        payload["parallel_tool_calls"] = body.parallel_tool_calls
    wanted = body.response_format
    if wanted.kind == "json_object":
        payload["response_format"] = {"type": "json_object"}
    elif wanted.kind == "json_schema":
        schema = {"name": "answer", "schema": wanted.schema, "strict": True}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    return payload
