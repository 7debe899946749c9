"""The session's configuration: the GA session object, its defaults, the deep merge, and what is refused.

A change is checked whole before anything of it is applied. A null switches off what can be off (turn detection,
transcription, noise reduction, tracing, prompt, include); anywhere else it means "not given". Keys that this server does
not know are ignored, because clients gain fields faster than servers do; a known key with a wrong value is refused by
its path.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

from antiphon.session.checks import (
    Json,
    a_bool,
    a_free_object,
    a_list,
    a_number,
    a_string,
    an_int,
    an_object,
    one_of,
    required,
)
from antiphon.session.detection import SERVER_VAD, merged_detection
from antiphon.session.errors import Refused, wrong_type
from antiphon.session.features import Features
from antiphon.session.request import Recognition
from antiphon.session.tools import checked_choice, checked_tools

Kind = Literal["realtime", "transcription"]
INSTRUCTIONS = "You are a helpful voice assistant. Answer briefly, in the language of the user."
VOICE = "marin"
FORMATS = {"audio/pcm": 24_000, "audio/pcmu": 8_000, "audio/pcma": 8_000}
OLD_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
SERVER_ONLY = frozenset({"id", "object", "model", "expires_at", "type"})


def fresh(model: str, session_id: str, expires_at: int, kind: Kind = "realtime", features: Features | None = None) -> Json:
    """The whole object before a client has said anything."""
    listening: Json = {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": None,
        "noise_reduction": None,
        "turn_detection": dict(SERVER_VAD),
    }
    if kind == "transcription":
        listening["transcription"] = {"model": model or "whisper-1"}
        return {
            "type": kind,
            "object": "realtime.transcription_session",
            "id": session_id,
            "expires_at": expires_at,
            "audio": {"input": listening},
            "include": None,
        }
    speaks = "audio" in (features or Features()).outputs
    return {
        "type": kind,
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "output_modalities": ["audio"] if speaks else ["text"],
        "instructions": INSTRUCTIONS,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_output_tokens": "inf",
        "truncation": "auto",
        "tracing": None,
        "prompt": None,
        "include": None,
        "expires_at": expires_at,
        "audio": {
            "input": listening,
            "output": {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": VOICE, "speed": 1.0},
        },
    }


def merged(old: Json, patch: Any, features: Features | None = None, *, voice_locked: bool = False) -> Json:
    """``old`` with ``patch`` (the ``session`` of a session.update) laid over it. Raises ``Refused``; changes neither."""
    features = features or Features()
    patch = an_object(patch, "session")
    if required(patch, "type", "session") != old["type"]:
        one_of(patch["type"], "session.type", ("realtime", "transcription"))
        raise Refused("The session type cannot be changed.", "invalid_value", "session.type")
    new = copy.deepcopy(old)
    if patch.get("audio") is not None:
        audio = an_object(patch["audio"], "session.audio")
        if audio.get("input") is not None:
            _merge_input(new["audio"]["input"], an_object(audio["input"], "session.audio.input"), features)
        if audio.get("output") is not None and old["type"] == "realtime":
            _merge_output(new["audio"]["output"], an_object(audio["output"], "session.audio.output"), voice_locked)
    if "include" in patch:
        new["include"] = None if patch["include"] is None else _strings(patch["include"], "session.include")
    if old["type"] == "realtime":
        _merge_top(new, patch, features)
    return new


def _merge_top(new: Json, patch: Json, features: Features) -> None:
    if patch.get("output_modalities") is not None:
        new["output_modalities"] = modalities(patch["output_modalities"], "session.output_modalities", features)
    if patch.get("instructions") is not None:
        new["instructions"] = a_string(patch["instructions"], "session.instructions")
    if patch.get("tools") is not None:
        new["tools"] = checked_tools(patch["tools"], "session.tools")
    if patch.get("tool_choice") is not None:
        new["tool_choice"] = checked_choice(patch["tool_choice"], "session.tool_choice")
    if patch.get("parallel_tool_calls") is not None:
        new["parallel_tool_calls"] = a_bool(patch["parallel_tool_calls"], "session.parallel_tool_calls")
    if patch.get("max_output_tokens") is not None:
        new["max_output_tokens"] = token_limit(patch["max_output_tokens"], "session.max_output_tokens")
    if patch.get("temperature") is not None:  # the beta's; told only where it was set, for GA has no such field
        new["temperature"] = a_number(patch["temperature"], "session.temperature", 0.0, 2.0)
    if patch.get("truncation") is not None:
        new["truncation"] = _truncation(patch["truncation"], "session.truncation")
    if "tracing" in patch:
        new["tracing"] = _tracing(patch["tracing"], "session.tracing")
    if "prompt" in patch:
        new["prompt"] = None if patch["prompt"] is None else a_free_object(patch["prompt"], "session.prompt")
    if patch.get("reasoning") is not None:
        new["reasoning"] = a_free_object(patch["reasoning"], "session.reasoning")


def _merge_input(new: Json, patch: Json, features: Features) -> None:
    path = "session.audio.input"
    if patch.get("format") is not None:
        new["format"] = audio_format(patch["format"], f"{path}.format", new["format"], (24_000, 16_000))
    if "noise_reduction" in patch:
        new["noise_reduction"] = _noise_reduction(patch["noise_reduction"], f"{path}.noise_reduction")
    if "transcription" in patch:
        new["transcription"] = _transcription(new["transcription"], patch["transcription"], f"{path}.transcription")
    if "turn_detection" in patch:
        new["turn_detection"] = merged_detection(new["turn_detection"], patch["turn_detection"], f"{path}.turn_detection")


def _merge_output(new: Json, patch: Json, voice_locked: bool) -> None:
    path = "session.audio.output"
    if patch.get("format") is not None:
        new["format"] = audio_format(patch["format"], f"{path}.format", new["format"], (24_000,))
    if patch.get("voice") is not None:
        voice = voice_name(patch["voice"], f"{path}.voice")
        if voice_locked and voice != new["voice"]:
            raise Refused(
                "Cannot update a conversation's voice if assistant audio is present.",
                "cannot_update_voice",
                f"{path}.voice",
            )
        new["voice"] = voice
    if patch.get("speed") is not None:
        new["speed"] = a_number(patch["speed"], f"{path}.speed", 0.25, 1.5)


def modalities(value: Any, param: str, features: Features) -> list[str]:
    """["audio"] or ["text"]. The older ["text", "audio"] means audio, which always comes with its transcript."""
    names = [one_of(v, f"{param}[{i}]", ("text", "audio")) for i, v in enumerate(a_list(value, param, 2))]
    if not names:
        raise Refused(f"Invalid '{param}': expected 'audio' or 'text'.", "invalid_value", param)
    name = "audio" if "audio" in names else "text"
    if name not in features.outputs:
        has = ", ".join(f"'{o}'" for o in features.outputs)
        raise Refused(f"This model cannot answer with '{name}'. It can answer with {has}.", "unsupported_value", param)
    return [name]


def audio_format(value: Any, param: str, old: Json, rates: tuple[int, ...]) -> Json:
    """``{type, rate}`` for PCM, ``{type}`` for G.711. A bare name, as older clients send it, is read as its type."""
    patch = {"type": value} if isinstance(value, str) else an_object(value, param)
    kind = patch.get("type", old["type"])
    if isinstance(kind, str):
        kind = OLD_FORMATS.get(kind, kind)
    one_of(kind, f"{param}.type", tuple(FORMATS))
    if kind != "audio/pcm":
        return {"type": kind}
    rate = patch.get("rate")
    if rate is None:
        return {"type": kind, "rate": 24_000}
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise wrong_type(f"{param}.rate", "an integer", rate)
    if rate not in rates:
        raise Refused(
            f"Invalid value: {rate:g}. Supported values are: {', '.join(map(str, rates))}.",
            "invalid_value",
            f"{param}.rate",
        )
    return {"type": kind, "rate": int(rate)}


def voice_name(value: Any, param: str) -> str:
    """Any name, or ``{"id": name}``; kept as a string, which is what every client can read back."""
    if isinstance(value, dict):
        value = required(value, "id", param)
    return a_string(value, param, 256)


def token_limit(value: Any, param: str) -> int | str:
    if value == "inf":
        return "inf"
    if isinstance(value, str):
        raise wrong_type(param, "an integer or 'inf'", value)
    return an_int(value, param, 1, 4096)


def format_of(config: Json) -> tuple[str, int]:
    """The input format in force: its type and samples per second."""
    given = config["audio"]["input"]["format"]
    return given["type"], given.get("rate", FORMATS[given["type"]])


def recognition_of(config: Json) -> Recognition:
    """How the user's speech is to be read, whether or not the client wants to see the transcript."""
    given = config["audio"]["input"]["transcription"] or {}
    languages = given.get("languages") or []
    return Recognition(
        language=given.get("language") or (languages[0] if len(languages) == 1 else ""),
        prompt=given.get("prompt") or "",
        keywords=tuple(given.get("keywords") or ()),
        model=given.get("model") or "",
    )


def _transcription(old: Json | None, patch: Any, param: str) -> Json | None:
    """Any model name is taken: a local server has one recogniser, and clients name the one they know."""
    if patch is None:
        return None
    new = dict(old or {})
    for key, value in an_object(patch, param).items():
        where = f"{param}.{key}"
        if value is None:
            new.pop(key, None)
        elif key in ("model", "language", "prompt"):
            new[key] = a_string(value, where, 16_384)
        elif key in ("keywords", "languages"):
            new[key] = _strings(value, where)
        elif key == "delay":
            new[key] = a_string(value, where, 64)
    new.setdefault("model", "whisper-1")
    return new


def _noise_reduction(value: Any, param: str) -> Json | None:
    if value is None:
        return None
    given = an_object(value, param)
    new: Json = {"type": one_of(required(given, "type", param), f"{param}.type", ("near_field", "far_field"))}
    if given.get("strength") is not None:
        new["strength"] = a_number(given["strength"], f"{param}.strength", 0.0, 1.0)
    return new


def _truncation(value: Any, param: str) -> str | Json:
    if isinstance(value, str):
        return one_of(value, param, ("auto", "disabled"))
    given = an_object(value, param)
    one_of(required(given, "type", param), f"{param}.type", ("retention_ratio",))
    ratio = a_number(required(given, "retention_ratio", param), f"{param}.retention_ratio", 0.0, 1.0)
    new: Json = {"type": "retention_ratio", "retention_ratio": ratio}
    if given.get("token_limits") is not None:
        limits = an_object(given["token_limits"], f"{param}.token_limits")
        if limits.get("post_instructions") is not None:
            where = f"{param}.token_limits.post_instructions"
            new["token_limits"] = {"post_instructions": an_int(limits["post_instructions"], where, 0, 1 << 24)}
    return new


def _tracing(value: Any, param: str) -> str | Json | None:
    """Echoed, not acted upon: traces of this server go elsewhere."""
    if value is None:
        return None
    return one_of(value, param, ("auto",)) if isinstance(value, str) else a_free_object(value, param)


def _strings(value: Any, param: str) -> list[str]:
    return [a_string(v, f"{param}[{i}]", 1_024) for i, v in enumerate(a_list(value, param))]
