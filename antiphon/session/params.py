"""The ``response`` of a response.create: checked, and read once into what it means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from antiphon.session.checks import Json, a_bool, a_list, a_number, a_string, an_object, one_of
from antiphon.session.config import audio_format, modalities, token_limit, voice_name
from antiphon.session.errors import Refused
from antiphon.session.features import Features
from antiphon.session.tools import checked_choice, checked_tools

MAX_METADATA = 16


@dataclass(frozen=True)
class ResponseParams:
    """None means: as the session has it. ``input`` are GA items or item_references, not checked further here."""

    aside: bool = False
    input: list[Any] | None = None
    instructions: str | None = None
    modality: str | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | str | None = None
    temperature: float | None = None
    voice: str | None = None
    format: Json | None = None
    metadata: Json | None = None


@dataclass
class _Reader:
    """Older names are read where the newer one is not given."""

    given: Json
    found: dict[str, Any] = field(default_factory=dict)

    def get(self, *names: str) -> tuple[Any, str]:
        for name in names:
            if self.given.get(name) is not None:
                return self.given[name], f"response.{name}"
        return None, f"response.{names[0]}"


def checked_params(value: Any, features: Features, output_format: Json, voice: str | None = None) -> ResponseParams:
    """``voice``: the one that the conversation has been spoken in, None while nothing has been said."""
    if value is None:
        return ResponseParams()
    read = _Reader(an_object(value, "response"))
    found = read.found
    conversation, path = read.get("conversation")
    found["aside"] = conversation is not None and one_of(conversation, path, ("auto", "none")) == "none"
    for name, check in (("instructions", a_string), ("parallel_tool_calls", a_bool), ("tools", checked_tools)):
        given, path = read.get(name)
        if given is not None:
            found[name] = check(given, path)
    given, path = read.get("tool_choice")
    if given is not None:
        found["tool_choice"] = checked_choice(given, path)
    given, path = read.get("input")
    if given is not None:
        found["input"] = a_list(given, path)
    given, path = read.get("output_modalities", "modalities")
    if given is not None:
        found["modality"] = modalities(given, path, features)[0]
    given, path = read.get("max_output_tokens", "max_response_output_tokens")
    if given is not None:
        found["max_tokens"] = token_limit(given, path)
    given, path = read.get("temperature")
    if given is not None:
        found["temperature"] = a_number(given, path, 0.0, 2.0)
    given, path = read.get("metadata")
    if given is not None:
        found["metadata"] = _metadata(given, path)
    _audio(read, output_format, voice, found)
    return ResponseParams(**found)


def _audio(read: _Reader, output_format: Json, locked: str | None, found: dict[str, Any]) -> None:
    audio, path = read.get("audio")
    output = an_object(audio, path).get("output") if audio is not None else None
    output = {} if output is None else an_object(output, f"{path}.output")
    voice, where = output.get("voice"), f"{path}.output.voice"
    if voice is None:
        voice, where = read.get("voice")
    if voice is not None:
        found["voice"] = voice_name(voice, where)
        if locked is not None and not found["aside"] and found["voice"] != locked:
            raise Refused("Cannot update a conversation's voice if assistant audio is present.", "cannot_update_voice", where)
    form, where = output.get("format"), f"{path}.output.format"
    if form is None:
        form, where = read.get("output_audio_format")
    if form is not None:
        found["format"] = audio_format(form, where, output_format, (24_000,))
        if found["format"] != output_format:
            raise Refused(
                "A response's output format must be the session's; change it with session.update.",
                "unsupported_value",
                where,
            )


def _metadata(value: Any, param: str) -> Json:
    pairs = an_object(value, param)
    if len(pairs) > MAX_METADATA:
        raise Refused(
            f"Invalid '{param}': too many properties. Expected at most {MAX_METADATA}, but got {len(pairs)} instead.",
            "object_above_max_properties",
            param,
        )
    return {a_string(key, param, 64): a_string(text, f"{param}.{key}", 512) for key, text in pairs.items()}
