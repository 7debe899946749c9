"""The wire's check of client events: every field missing, null and of every wrong type; rubbish of every kind."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.protocol import schema, wire
from antiphon.realtime.protocol.beta import Beta
from antiphon.realtime.protocol.media import check_media

# What each event must carry, from the protocol's table of client events (not from the schema).
FULL: dict[str, dict[str, Any]] = {
    "session.update": {"session": {"type": "realtime"}},
    "input_audio_buffer.append": {"audio": "AAAA"},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "conversation.item.create": {
        "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    },
    "conversation.item.retrieve": {"item_id": "x"},
    "conversation.item.truncate": {"item_id": "x", "content_index": 0, "audio_end_ms": 10},
    "conversation.item.delete": {"item_id": "x"},
    "response.create": {},
    "response.cancel": {},
    "output_audio_buffer.clear": {},
}
REQUIRED = [
    ("session.update", "session"),
    ("session.update", "session.type"),
    ("input_audio_buffer.append", "audio"),
    ("conversation.item.create", "item"),
    ("conversation.item.create", "item.type"),
    ("conversation.item.create", "item.role"),
    ("conversation.item.create", "item.content"),
    ("conversation.item.create", "item.content[0].type"),
    ("conversation.item.retrieve", "item_id"),
    ("conversation.item.truncate", "item_id"),
    ("conversation.item.truncate", "content_index"),
    ("conversation.item.truncate", "audio_end_ms"),
    ("conversation.item.delete", "item_id"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def frame(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "event_id": "mine", **copy.deepcopy(FULL[kind]), **fields})


def refusal(raw: str | bytes, dialect: schema.Dialect = "ga") -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        wire.parse(raw, dialect)
    return caught.value


def at(event: dict[str, Any], path: str) -> tuple[Any, Any]:
    """The holder and the key of a path such as ``item.content[0].type``."""
    *before, last = path.replace("[0]", ".0").split(".")
    holder: Any = event
    for step in before:
        holder = holder[int(step)] if step.isdigit() else holder[step]
    return holder, last


@pytest.mark.parametrize("kind", FULL)
def test_the_smallest_event_of_each_type_passes(kind: str) -> None:
    assert wire.parse(frame(kind))["type"] == kind
    assert wire.parse(frame(kind).encode())["type"] == kind


@pytest.mark.parametrize("gone", [True, False], ids=["missing", "null"])
@pytest.mark.parametrize(("kind", "path"), REQUIRED)
def test_a_required_field_that_is_missing_or_null_is_named(kind: str, path: str, gone: bool) -> None:
    event = json.loads(frame(kind))
    holder, key = at(event, path)
    if gone:
        del holder[key]
    else:
        holder[key] = None
    error = refusal(json.dumps(event))
    assert (error.code, error.param, error.event_id) == ("missing_required_parameter", path, "mine")
    assert str(error) == f"Missing required parameter: '{path}'."


@pytest.mark.parametrize("wrong", [[], {}, 1, 1.5, True, "text"], ids=repr)
@pytest.mark.parametrize(("kind", "path"), REQUIRED)
def test_a_required_field_of_a_wrong_type_is_named(kind: str, path: str, wrong: Any) -> None:
    event = json.loads(frame(kind))
    holder, key = at(event, path)
    if type(wrong) is type(holder[key]):
        return  # that is the right type
    holder[key] = wrong
    error = refusal(json.dumps(event))
    assert (error.code, error.param, error.event_id) == ("invalid_type", path, "mine")


@pytest.mark.parametrize(
    ("raw", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("nonsense", "invalid_json", None),
        ('{"type": NaN}', "invalid_json", None),
        ('{"type": "a\ud800"}'.encode("utf-8", "surrogatepass"), "invalid_json", None),
        ('{"type": "response.cancel", "response_id": "\\ud800"}', "invalid_json", None),
        (b"\xff\xfe", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ('{"a":' * 100_000, "invalid_json", None),
        ("[]", "invalid_event", None),
        ("3", "invalid_event", None),
        ("null", "invalid_event", None),
        ("{}", "missing_required_parameter", "type"),
        ('{"type": null}', "missing_required_parameter", "type"),
        ('{"type": 3}', "invalid_type", "type"),
        ('{"type": ["response.create"]}', "invalid_type", "type"),
        ('{"type": "response.creat"}', "invalid_value", "type"),
        ('{"type": "transcription_session.update", "session": {}}', "invalid_value", "type"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_event(raw: str | bytes, code: str, param: str | None) -> None:
    error = refusal(raw)
    assert (error.code, error.param) == (code, param)


def test_an_event_id_of_a_wrong_type_is_not_echoed() -> None:
    error = refusal(json.dumps({"type": "response.create", "event_id": 7}))
    assert (error.code, error.param, error.event_id) == ("invalid_type", "event_id", None)


def test_an_unknown_type_echoes_the_event_id() -> None:
    assert refusal(json.dumps({"type": "no", "event_id": "e1"})).event_id == "e1"


def test_an_over_long_description_of_a_tool() -> None:
    tools = [{"type": "function", "name": "f", "description": "d"}, {"type": "function", "description": "d" * 1025}]
    error = refusal(frame("session.update", session={"type": "realtime", "tools": tools}))
    assert (error.code, error.param) == ("string_above_max_length", "session.tools[1].description")


@pytest.mark.parametrize(
    ("metadata", "code"),
    [({"a": 1}, "invalid_type"), ({str(n): "" for n in range(17)}, "array_above_max_length"), ([], "invalid_type")],
)
def test_metadata_is_at_most_sixteen_pairs_of_strings(metadata: Any, code: str) -> None:
    error = refusal(frame("response.create", response={"metadata": metadata}))
    assert (error.code, error.param) == (code, "response.metadata")


@pytest.mark.parametrize(
    "session",
    [
        {"tracing": "auto"},
        {"tracing": None, "model": "gpt-realtime-9", "reasoning": {"effort": "low"}, "prompt": {"id": "p"}},
        {"audio": {"input": {"turn_detection": None, "noise_reduction": None, "transcription": None}}},
        {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "auto"}}}},
        {"audio": {"output": {"voice": {"id": "voice_1"}, "speed": 1}}},
        {"audio": {"input": {"format": "pcm16", "turn_detection": {"silence_duration_ms": 500.0}}}},
        {"tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": "inf"},
        {"a_field_of_next_year": {"deep": [1, 2]}},
    ],
    ids=repr,
)
def test_session_updates_of_known_clients_pass(session: dict[str, Any]) -> None:
    wire.parse(frame("session.update", session={"type": "realtime", **session}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted({*FULL, "transcription_session.update"})), st.data())
def test_any_json_in_any_field_is_an_event_or_a_refusal(kind: str, data: st.DataObject) -> None:
    event = {"type": kind, **copy.deepcopy(FULL.get(kind, {"session": {}}))}
    for path in data.draw(st.lists(st.sampled_from(FIELDS), max_size=3)):
        put(event, path, data.draw(JSON))
    for dialect in ("ga", "beta"):
        try:
            checked = wire.parse(json.dumps(event), dialect)
            told = Beta().to_ga(checked) if dialect == "beta" else checked
            check_media(told)
        except ProtocolError as e:
            assert e.code  # and nothing else is ever raised
            wire.encode(wire.error_event(e))


FIELDS = [
    "event_id", "session", "session.audio", "session.audio.input", "session.audio.input.turn_detection", "session.tools",
    "session.audio.input.format", "session.audio.output", "session.tool_choice", "session.turn_detection", "item",
    "session.input_audio_format", "session.modalities", "item.content", "item.id", "item.role", "item.type", "audio",
    "response", "response.input", "response.metadata", "response.audio", "response.modalities", "response.tools",
    "previous_item_id", "item_id", "audio_end_ms", "content_index", "response_id",
]  # fmt: skip


def put(event: dict[str, Any], path: str, value: Any) -> None:
    *before, last = path.split(".")
    holder = event
    for step in before:
        if not isinstance(holder.get(step), dict):
            holder[step] = {}
        holder = holder[step]
    holder[last] = value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64) | st.text(max_size=64))
def test_rubbish_is_refused(raw: bytes | str) -> None:
    try:
        wire.parse(raw)
    except ProtocolError as e:
        assert e.code in ("invalid_json", "invalid_event", "missing_required_parameter", "invalid_value", "invalid_type")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 639, 641])
def test_base64_of_any_length_with_and_without_padding(size: int) -> None:
    data = bytes(range(256)) * 3
    data = data[:size]
    text = base64.b64encode(data).decode()
    assert wire.audio_bytes(text) == data
    assert wire.audio_bytes(text.rstrip("=")) == data


@pytest.mark.parametrize("text", ["A", "AAAAA", "====", "A===", "ÄÄÄÄ", "AA=A", "<html>", "AAAA\x00AAA"])
def test_what_is_not_base64(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        wire.audio_bytes(text, event_id="e")
    assert (caught.value.code, caught.value.param, caught.value.event_id) == ("invalid_value", "audio", "e")


def test_the_largest_frames() -> None:
    most = base64.b64encode(bytes(wire.MAX_APPEND)).decode()
    event = wire.parse(json.dumps({"type": "input_audio_buffer.append", "audio": most}))
    assert len(wire.audio_bytes(event["audio"])) == wire.MAX_APPEND
    with pytest.raises(ProtocolError, match="At most 15 MiB"):
        wire.audio_bytes(most + "AAAA")
    assert refusal(" " * (wire.MAX_FRAME + 1)).code == "invalid_value"


@pytest.mark.parametrize(
    ("event", "param"),
    [
        (
            {
                "type": "conversation.item.create",
                "item": {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "A"}]},
            },
            "item.content[0].audio",
        ),
        (
            {
                "type": "response.create",
                "response": {
                    "input": [
                        {
                            "type": "message",
                            "role": "user",
                            "content": [{"type": "input_image", "image_url": "http://127.0.0.1/secret"}],
                        }
                    ]
                },
            },
            "response.input[0].content[0].image_url",
        ),
    ],
)
def test_media_in_items_are_tried_at_the_edge(event: dict[str, Any], param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_media(wire.parse(json.dumps(event)))
    assert caught.value.param == param


def test_integers_beyond_64_bits_come_back_as_they_came() -> None:
    text = wire.encode({"type": "x", "n": 10**30})
    assert json.loads(text) == {"type": "x", "n": 10**30}
