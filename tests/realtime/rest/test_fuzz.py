"""Whatever stands in a body: an answer or a named refusal, never a fault of ours."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.realtime.errors import BadRequest
from antiphon.realtime.rest import chat_body, fields
from antiphon.realtime.rest.audio_answers import AudioAnswers
from antiphon.realtime.rest.chat_body import Chat, ChatBody
from antiphon.realtime.rest.speech import SpeechBody
from tests.realtime.stub_client import INFO

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
ANYTHING = st.recursive(
    SCALARS, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3), max_leaves=8
)
FULL: dict[str, Any] = {
    "model": "x",
    "messages": [
        {"role": "system", "content": "a"},
        {"role": "user", "content": [
            {"type": "text", "text": "b"},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "d"},
    ],
    "modalities": ["text", "audio"], "audio": {"voice": "anna", "format": "wav"}, "stream": True,
    "stream_options": {"include_usage": True}, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}, "max_tokens": 3, "temperature": 1.0, "top_p": 1.0,
    "stop": ["x"], "seed": 1, "n": 1, "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
    "stage_params": {"a": {}}, "stage_sampling": {"a": {"seed": 1, "stop": ["x"]}}, "request_id": "r",
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in inside for p in places(item, (*path, key)))]


@given(place=st.sampled_from(places(FULL)[1:]), value=ANYTHING, drop=st.booleans())
@settings(max_examples=300, deadline=None)
def test_chat_with_any_field_missing_or_replaced(place: tuple[Any, ...], value: Any, drop: bool) -> None:
    body = json.loads(json.dumps(FULL))
    holder = body
    for key in place[:-1]:
        holder = holder[key]
    if drop:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    try:
        chat = chat_body.read(_parsed(body, ChatBody), INFO, "r", AudioAnswers(60, time.time), "me")
    except BadRequest as refusal:
        assert len(str(refusal)) < 400
    else:
        assert isinstance(chat, Chat)


@given(ANYTHING)
@settings(max_examples=150, deadline=None)
def test_any_json_as_a_body(value: Any) -> None:
    for shape in (ChatBody, SpeechBody):
        try:
            _parsed(value, shape)
        except BadRequest:
            pass


@given(st.binary(max_size=60))
def test_any_bytes_as_a_body(data: bytes) -> None:
    try:
        fields.parse(data, ChatBody)
    except BadRequest:
        pass


def _parsed(body: Any, shape: Any) -> Any:
    return fields.parse(json.dumps(body).encode(), shape)
