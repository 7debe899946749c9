"""The client events of the GA protocol and of the beta dialect as types, and the check of one event against them.

Only shapes are checked here: what must be there, and of which type. Whether a value makes sense in this session (an
unknown item, a voice that cannot change any more) is for the session to say. Unknown keys pass: clients add them faster
than a server follows. A null where a field is required counts as missing; anywhere else it means "not given", except in
``session.update``, where it is a value of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required, TypedDict

import msgspec

from antiphon.realtime.errors import ProtocolError

Json = dict[str, Any]
Dialect = Literal["ga", "beta"]

Id = Annotated[str, msgspec.Meta(max_length=512)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Count = Annotated[float, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number that may be written as 500 or 500.0; whether a fraction makes sense is for the session to say."""
Object = dict[str, Any]
Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]


class TurnDetection(TypedDict, total=False):
    type: str | None
    threshold: float | None
    prefix_padding_ms: Count | None
    silence_duration_ms: Count | None
    idle_timeout_ms: Count | None
    create_response: bool | None
    interrupt_response: bool | None
    eagerness: str | None


class InputTranscription(TypedDict, total=False):
    model: str | None
    language: str | None
    prompt: str | None
    languages: list[str] | None
    keywords: list[str] | None
    delay: str | None


class Format(TypedDict, total=False):
    """An object in GA; the bare names of the beta are still sent to GA sockets."""

    type: str | None
    rate: Count | None


class NoiseReduction(TypedDict, total=False):
    type: str | None
    strength: float | None


class AudioInput(TypedDict, total=False):
    format: Format | str | None
    noise_reduction: NoiseReduction | None
    transcription: InputTranscription | None
    turn_detection: TurnDetection | None


class AudioOutput(TypedDict, total=False):
    format: Format | str | None
    voice: str | Object | None
    speed: float | None


class Audio(TypedDict, total=False):
    input: AudioInput | None
    output: AudioOutput | None


class Tool(TypedDict, total=False):
    """A function, or an MCP server (which the session refuses by name)."""

    type: Required[str]
    name: Id | None
    description: Annotated[str, msgspec.Meta(max_length=1024)] | None
    parameters: Object | None
    server_label: str | None


class SessionPatch(TypedDict, total=False):
    type: Required[str]
    model: str | None
    output_modalities: list[str] | None
    instructions: str | None
    audio: Audio | None
    tools: list[Tool] | None
    tool_choice: str | Object | None
    parallel_tool_calls: bool | None
    reasoning: Object | None
    max_output_tokens: Count | str | None
    temperature: float | None
    truncation: str | Object | None
    tracing: str | Object | None
    prompt: Object | None
    include: list[str] | None


class Part(TypedDict, total=False):
    type: Required[str]
    text: str | None
    transcript: str | None
    audio: str | None
    image_url: str | None
    detail: str | None


class Item(TypedDict, total=False):
    type: Required[str]
    id: Id | None
    status: str | None
    role: str | None
    content: list[Part] | None
    name: str | None
    arguments: str | None
    call_id: Id | None
    output: str | None


class Reference(TypedDict, total=False):
    """An item in ``response.create``'s input: a whole one, or ``{type: item_reference, id}`` (type may be absent)."""

    type: str | None
    id: Id | None
    status: str | None
    role: str | None
    content: list[Part] | None
    name: str | None
    arguments: str | None
    call_id: Id | None
    output: str | None


class ResponseParams(TypedDict, total=False):
    """GA fields and the older names that are still seen on GA sockets."""

    conversation: str | None
    input: list[Reference] | None
    instructions: str | None
    output_modalities: list[str] | None
    modalities: list[str] | None
    audio: Audio | None
    voice: str | Object | None
    tools: list[Tool] | None
    tool_choice: str | Object | None
    parallel_tool_calls: bool | None
    max_output_tokens: Count | str | None
    max_response_output_tokens: Count | str | None
    temperature: float | None
    metadata: Metadata | None
    prompt: Object | None
    reasoning: Object | None
    output_audio_format: str | None


class BetaSession(TypedDict, total=False):
    """The flat session of the beta dialect."""

    model: str | None
    modalities: list[str] | None
    instructions: str | None
    voice: str | Object | None
    speed: float | None
    input_audio_format: str | None
    input_audio_sample_rate: Count | None
    output_audio_format: str | None
    input_audio_transcription: InputTranscription | None
    input_audio_noise_reduction: NoiseReduction | None
    turn_detection: TurnDetection | None
    tools: list[Tool] | None
    tool_choice: str | Object | None
    temperature: float | None
    max_response_output_tokens: Count | str | None
    tracing: str | Object | None
    include: list[str] | None


class Event(TypedDict, total=False):
    """What every client event may carry."""

    type: Required[str]
    event_id: Id | None


class SessionUpdate(Event):
    session: SessionPatch


class BetaSessionUpdate(Event):
    session: BetaSession


class Append(Event):
    audio: str


class ItemCreate(Event, total=False):
    item: Required[Item]
    previous_item_id: Id | None


class ItemNamed(Event):
    item_id: Id


class ItemTruncate(Event):
    item_id: Id
    content_index: Whole
    audio_end_ms: Whole


class ResponseCreate(Event, total=False):
    response: ResponseParams | None


class ResponseCancel(Event, total=False):
    response_id: Id | None


GA: Mapping[str, type] = {
    "session.update": SessionUpdate,
    "input_audio_buffer.append": Append,
    "input_audio_buffer.commit": Event,
    "input_audio_buffer.clear": Event,
    "conversation.item.create": ItemCreate,
    "conversation.item.retrieve": ItemNamed,
    "conversation.item.truncate": ItemTruncate,
    "conversation.item.delete": ItemNamed,
    "response.create": ResponseCreate,
    "response.cancel": ResponseCancel,
    "output_audio_buffer.clear": Event,
}
BETA: Mapping[str, type] = {
    **GA,
    "session.update": BetaSessionUpdate,
    "transcription_session.update": BetaSessionUpdate,
}
"""Event type -> its shape, by dialect."""

ITEM_FIELDS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "item_reference": ("id",),
}
"""What an item of a type must have beside its type. Other types are the session's to refuse by name."""

_WHERE = re.compile(r" - at (?:`key` in )?`\$(?P<path>.*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>.+?)`")
_NULL = re.compile(r"Expected `(?![^`]*null)[^`]*`, got `null`")
_TYPE = re.compile(r"Expected `(?P<want>.+?)`, got `(?P<got>.+?)`")


def check(event: Any, dialect: Dialect = "ga") -> Json:
    """The same event, known to have its type's shape; raises ``ProtocolError`` with all that the client is told."""
    if not isinstance(event, dict):
        raise ProtocolError("Expected a JSON object.", code="invalid_event")
    event_id = event_id_of(event)
    kind = event.get("type")
    shapes = GA if dialect == "ga" else BETA
    if kind is None:
        raise _missing("type", event_id)
    if not isinstance(kind, str):
        raise ProtocolError("Invalid type for 'type': expected a string.", code="invalid_type", param="type", event_id=event_id)
    if kind not in shapes:
        known = ", ".join(f"'{name}'" for name in shapes)
        raise ProtocolError(
            f"Invalid value: '{kind[:64]}'. Supported values are: {known}.",
            code="invalid_value",
            param="type",
            event_id=event_id,
        )
    try:
        msgspec.convert(event, shapes[kind])
    except msgspec.ValidationError as e:
        raise _told(str(e), event_id) from None
    if kind == "conversation.item.create":
        _check_item(event["item"], "item", event_id)
    elif kind == "response.create":
        for n, item in enumerate((event.get("response") or {}).get("input") or ()):
            _check_item(item, f"response.input[{n}]", event_id)
    return event


def check_session(session: Any, dialect: Dialect = "ga") -> Json:
    """The session of a REST body (client secrets, calls): the same shapes, the same errors."""
    kind = "session.update"
    return check({"type": kind, "session": session}, dialect)["session"]  # type: ignore[no-any-return]


def event_id_of(event: Any) -> str | None:
    """The client's event_id if it is one: to be echoed in an error."""
    event_id = event.get("event_id") if isinstance(event, dict) else None
    return event_id if isinstance(event_id, str) and len(event_id) <= 512 else None


def _check_item(item: Json, path: str, event_id: str | None) -> None:
    kind = item.get("type")
    if kind is None and item.get("id") is None:
        raise _missing(f"{path}.type", event_id)
    for field in ITEM_FIELDS.get(kind or "item_reference", ()):
        if item.get(field) is None:
            raise _missing(f"{path}.{field}", event_id)


def _missing(param: str, event_id: str | None) -> ProtocolError:
    return ProtocolError(
        f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param, event_id=event_id
    )


def _told(message: str, event_id: str | None) -> ProtocolError:
    """msgspec's sentence about a mismatch in the protocol's words."""
    where = _WHERE.search(message)
    param = where["path"].lstrip(".").replace("[...]", "") if where else ""
    if missing := _MISSING.match(message):
        return _missing(f"{param}.{missing['field']}".lstrip("."), event_id)
    if _NULL.match(message):
        return _missing(param, event_id)
    code, told = "invalid_value", message[: where.start()] if where else message
    if kind := _TYPE.match(message):
        code, told = "invalid_type", f"expected {_words(kind['want'])}, but got {_words(kind['got'])} instead"
    elif "of length <=" in message:
        code = "string_above_max_length" if "`str`" in message else "array_above_max_length"
    return ProtocolError(f"Invalid '{param}': {told.replace('`', '')}.", code=code, param=param, event_id=event_id)


def _words(types: str) -> str:
    names = {"str": "a string", "int": "an integer", "float": "a number", "bool": "a boolean", "object": "an object"}
    names |= {"array": "an array", "null": "null"}
    return " or ".join(names.get(t, t) for t in types.split(" | "))
