"""Any JSON as a client event: an error by name, never an exception, and the session goes on."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.session import events as ev

from .talk import Talk, kinds, of

CORRECT: list[dict[str, Any]] = [
    {
        "type": "session.update",
        "event_id": "e",
        "session": {
            "type": "realtime",
            "output_modalities": ["audio"],
            "instructions": "x",
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
            "tool_choice": {"type": "function", "name": "f"},
            "max_output_tokens": 100,
            "truncation": {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 9}},
            "tracing": {"workflow_name": "w"},
            "prompt": {"id": "p"},
            "include": ["x"],
            "reasoning": {"effort": "low"},
            "parallel_tool_calls": True,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24_000},
                    "noise_reduction": {"type": "near_field", "strength": 0.1},
                    "transcription": {"model": "m", "language": "en", "prompt": "p", "keywords": ["k"]},
                    "turn_detection": {"type": "server_vad", "threshold": 0.5, "idle_timeout_ms": 6_000},
                },
                "output": {"format": {"type": "audio/pcmu"}, "voice": {"id": "v"}, "speed": 1.5},
            },
        },
    },
    {
        "type": "conversation.item.create",
        "previous_item_id": "root",
        "item": {
            "id": "i1",
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_audio", "audio": "AAAA", "transcript": "t"},
                {"type": "input_image", "image_url": "data:,", "detail": "low"},
            ],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {"id": "i2", "type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"},
    },
    {
        "type": "conversation.item.create",
        "item": {"id": "i3", "type": "function_call_output", "call_id": "c", "output": "x"},
    },
    {"type": "conversation.item.retrieve", "item_id": "i1"},
    {"type": "conversation.item.truncate", "item_id": "i0", "content_index": 0, "audio_end_ms": 10},
    {"type": "conversation.item.delete", "item_id": "i1"},
    {
        "type": "response.create",
        "response": {
            "conversation": "auto",
            "input": [
                {"type": "item_reference", "id": "i0"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            ],
            "instructions": "x",
            "output_modalities": ["text"],
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": "required",
            "max_output_tokens": 5,
            "metadata": {"a": "b"},
            "temperature": 0.7,
            "audio": {"output": {"voice": "v"}},
        },
    },
    {"type": "response.cancel", "response_id": "resp_x"},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "output_audio_buffer.clear"},
]
NAMES = [f"{n}-{event['type']}" for n, event in enumerate(CORRECT)]
WRONG: list[Any] = [None, True, 0, -1, 1.5, float("inf"), "", "x", "x" * 3_000_000, [], [None], [{}], {}, {"type": 1}]


def ready() -> Talk:
    talk = Talk()
    for item_id, role in (("i0", "assistant"), ("i9", "user")):
        part = {"type": "text", "text": "t"}
        talk.command("conversation.item.create", item={"id": item_id, "type": "message", "role": role, "content": [part]})
    call = {"id": "i8", "type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}
    talk.command("conversation.item.create", item=call)
    return talk


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += paths(inner, (*at, key))
    return found


@pytest.mark.parametrize("event", CORRECT, ids=NAMES)
def test_every_field_missing_or_wrong(event: dict[str, Any]) -> None:
    """One field at a time; the session object stays one that can be sent as JSON, and the talk goes on."""
    for path in paths(event):
        talk = ready()
        for wrong in ("missing", *WRONG):
            broken = copy.deepcopy(event)
            where = broken
            for key in path[:-1]:
                where = where[key]
            if wrong == "missing":
                del where[path[-1]]
            else:
                where[path[-1]] = wrong
            before = json.dumps(talk.session.config)
            answers = [e.event for e in talk.do(ev.Command(broken)) if isinstance(e, ev.Send)]
            if kinds(answers) == ["error"]:
                assert json.dumps(talk.session.config) == before
                error = answers[0]["error"]
                assert error["code"] and len(error["message"]) < 2_000
                assert error["event_id"] == (broken.get("event_id") if isinstance(broken.get("event_id"), str) else None)
            else:
                json.dumps(talk.session.config, allow_nan=False)
            if talk.session.responses.active:
                talk.command("response.cancel")
        talk.command("conversation.item.create", item={"type": "message", "role": "user", "content": "still there"})
        talk.turn()
        talk.close()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from([event["type"] for event in CORRECT]) | st.text(max_size=10)


@settings(max_examples=int(os.getenv("ANTIPHON_EXAMPLES", "25")), deadline=None)
@given(st.lists(st.fixed_dictionaries({"type": KINDS}, optional={
    "session": ANY, "item": ANY, "item_id": ANY, "response": ANY, "audio": ANY, "event_id": ANY, "content_index": ANY,
    "audio_end_ms": ANY, "previous_item_id": ANY, "response_id": ANY,
}), max_size=5))  # fmt: skip
def test_any_json_is_answered(events: list[Any]) -> None:
    talk = ready()
    for event in events:
        talk.do(ev.Command(event))
    talk.close()


@pytest.mark.parametrize("event", [None, 1, "x", [], {}, {"type": None}, {"type": 7}, {"type": "nope"}, {"type": []}])
def test_what_is_no_event(event: Any) -> None:
    answers = [e.event for e in Talk().do(ev.Command(event)) if isinstance(e, ev.Send)]
    assert kinds(answers) == ["error"]


def test_the_message_for_a_missing_type_is_the_one_clients_know() -> None:
    error = of(Talk().command(None), "error")[0]["error"]  # type: ignore[arg-type]
    assert error["message"] == "The 'type' field is missing." and error["param"] == "type"
