"""The session object: defaults, the deep merge, and what is refused by which path."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from antiphon.session import config
from antiphon.session.errors import Refused
from antiphon.session.features import Features


def fresh() -> dict[str, Any]:
    return config.fresh("m", "sess_1", 3600)


def merge(**patch: Any) -> dict[str, Any]:
    return config.merged(fresh(), {"type": "realtime", **patch})


def listening(**patch: Any) -> dict[str, Any]:
    return merge(audio={"input": patch})["audio"]["input"]


def test_defaults_are_the_protocols() -> None:
    session = fresh()
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "idle_timeout_ms": None,
        "create_response": True,
        "interrupt_response": True,
    }
    assert session["output_modalities"] == ["audio"] and session["tool_choice"] == "auto"
    assert session["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "voice": "marin",
        "speed": 1.0,
    }
    assert session["max_output_tokens"] == "inf" and session["truncation"] == "auto"


def test_only_the_keys_that_are_there_change() -> None:
    detection = listening(turn_detection={"type": "server_vad", "threshold": 0.8})["turn_detection"]
    assert detection["threshold"] == 0.8 and detection["create_response"] is detection["interrupt_response"] is True
    first = merge(audio={"input": {"transcription": {"model": "w", "language": "en"}}})
    second = config.merged(first, {"type": "realtime", "audio": {"input": {"transcription": {"language": "de"}}}})
    assert second["audio"]["input"]["transcription"] == {"model": "w", "language": "de"}
    assert first["audio"]["input"]["transcription"]["language"] == "en", "the old object is not touched"


def test_a_partial_turn_detection_keeps_its_type() -> None:
    assert listening(turn_detection={"threshold": 0.3})["turn_detection"]["type"] == "server_vad"


def test_null_switches_off_and_none_is_an_older_null() -> None:
    off = listening(turn_detection=None, transcription=None, noise_reduction=None)
    assert off["turn_detection"] is None and off["transcription"] is None
    assert listening(turn_detection={"type": "none"})["turn_detection"] is None


def test_another_kind_of_turn_detection_starts_from_its_own_defaults() -> None:
    semantic = listening(turn_detection={"type": "semantic_vad", "eagerness": "low", "threshold": 0.2})["turn_detection"]
    assert semantic == {
        "type": "semantic_vad",
        "eagerness": "low",
        "create_response": True,
        "interrupt_response": True,
    }


def test_the_model_and_ids_are_echoed_not_changed() -> None:
    session = merge(model="gpt-realtime-9", id="x", expires_at=1, object="y", nonsense=1)
    assert (session["model"], session["id"], session["expires_at"]) == ("m", "sess_1", 3600)
    assert "nonsense" not in session


def test_tracing_prompt_include_and_reasoning_are_accepted() -> None:
    session = merge(tracing="auto", prompt={"id": "p"}, include=["a"], reasoning={"effort": "low"})
    assert session["tracing"] == "auto" and session["reasoning"] == {"effort": "low"}


def test_16_khz_input_is_accepted_and_echoed_and_no_other() -> None:
    assert listening(format={"type": "audio/pcm", "rate": 16_000})["format"]["rate"] == 16_000
    assert listening(format={"type": "audio/pcm"})["format"]["rate"] == 24_000
    assert listening(format={"type": "audio/pcmu"})["format"] == {"type": "audio/pcmu"}
    assert listening(format="g711_alaw")["format"] == {"type": "audio/pcma"}
    assert config.format_of(merge(audio={"input": {"format": {"type": "audio/pcma"}}})) == ("audio/pcma", 8_000)
    with pytest.raises(Refused) as refused:
        listening(format={"type": "audio/pcm", "rate": 44_100})
    assert refused.value.param == "session.audio.input.format.rate"
    with pytest.raises(Refused):
        merge(audio={"output": {"format": {"type": "audio/pcm", "rate": 16_000}}})


def test_a_voice_is_echoed_as_a_string_and_locked_once_heard() -> None:
    session = merge(audio={"output": {"voice": {"id": "voice_1"}}})
    assert session["audio"]["output"]["voice"] == "voice_1"
    patch = {"type": "realtime", "audio": {"output": {"voice": "voice_1"}}}
    assert config.merged(session, patch, voice_locked=True) == session, "the same voice is no change"
    patch["audio"]["output"]["voice"] = "other"
    with pytest.raises(Refused) as refused:
        config.merged(session, patch, voice_locked=True)
    assert refused.value.code == "cannot_update_voice"


def test_older_both_modalities_mean_audio() -> None:
    assert merge(output_modalities=["text", "audio"])["output_modalities"] == ["audio"]


def test_a_pipeline_without_a_voice_refuses_audio_by_name() -> None:
    text_only = Features(outputs=("text",))
    session = config.fresh("m", "s", 1, features=text_only)
    assert session["output_modalities"] == ["text"]
    with pytest.raises(Refused, match="'audio'") as refused:
        config.merged(session, {"type": "realtime", "output_modalities": ["audio"]}, text_only)
    assert refused.value.param == "session.output_modalities"


LONG = "x" * 1025
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"output_modalities": "audio"}, "invalid_type", "session.output_modalities"),
    ({"output_modalities": ["video"]}, "invalid_value", "session.output_modalities[0]"),
    ({"output_modalities": []}, "invalid_value", "session.output_modalities"),
    ({"instructions": 5}, "invalid_type", "session.instructions"),
    ({"tools": {}}, "invalid_type", "session.tools"),
    ({"tools": [{"name": "f"}]}, "missing_required_parameter", "session.tools[0].type"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "session.tools[0].name"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "unsupported_tool", "session.tools[0].type"),
    (
        {"tools": [{"type": "function", "name": "f", "description": LONG}]},
        "string_above_max_length",
        "session.tools[0].description",
    ),
    ({"tool_choice": "maybe"}, "invalid_value", "session.tool_choice"),
    ({"tool_choice": {"type": "function"}}, "missing_required_parameter", "session.tool_choice.name"),
    ({"max_output_tokens": 0}, "integer_below_min_value", "session.max_output_tokens"),
    ({"max_output_tokens": 5000}, "integer_above_max_value", "session.max_output_tokens"),
    ({"max_output_tokens": True}, "invalid_type", "session.max_output_tokens"),
    ({"truncation": "some"}, "invalid_value", "session.truncation"),
    ({"truncation": {"type": "retention_ratio", "retention_ratio": 2}}, "decimal_above_max_value",
     "session.truncation.retention_ratio"),
    ({"audio": []}, "invalid_type", "session.audio"),
    ({"audio": {"input": 1}}, "invalid_type", "session.audio.input"),
    ({"audio": {"input": {"turn_detection": "vad"}}}, "invalid_type", "session.audio.input.turn_detection"),
    ({"audio": {"input": {"turn_detection": {"type": "x"}}}}, "invalid_value",
     "session.audio.input.turn_detection.type"),
    ({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}}, "decimal_above_max_value",
     "session.audio.input.turn_detection.threshold"),
    ({"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": float("nan")}}}}, "invalid_type",
     "session.audio.input.turn_detection.threshold"),
    ({"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 10}}}},
     "integer_below_min_value", "session.audio.input.turn_detection.idle_timeout_ms"),
    ({"audio": {"input": {"transcription": {"model": 3}}}}, "invalid_type", "session.audio.input.transcription.model"),
    ({"audio": {"input": {"noise_reduction": {"type": "x"}}}}, "invalid_value",
     "session.audio.input.noise_reduction.type"),
    ({"audio": {"output": {"speed": 9}}}, "decimal_above_max_value", "session.audio.output.speed"),
    ({"audio": {"output": {"voice": 3}}}, "invalid_type", "session.audio.output.voice"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "code", "param"), WRONG, ids=[f"{p}-{c}" for _, c, p in WRONG])
def test_wrong_values_are_refused_by_their_path_and_change_nothing(patch: dict[str, Any], code: str, param: str) -> None:
    old = fresh()
    before = copy.deepcopy(old)
    with pytest.raises(Refused) as refused:
        config.merged(old, {"type": "realtime", "instructions": "new", **patch})
    assert (refused.value.code, refused.value.param) == (code, param)
    assert old == before


def test_the_type_is_required_and_cannot_change() -> None:
    with pytest.raises(Refused) as refused:
        config.merged(fresh(), {"instructions": "x"})
    assert str(refused.value) == "Missing required parameter: 'session.type'."
    assert (refused.value.code, refused.value.param) == ("missing_required_parameter", "session.type")
    with pytest.raises(Refused):
        config.merged(fresh(), {"type": "transcription"})


def test_recognition_is_what_biases_the_recogniser() -> None:
    session = merge(audio={"input": {"transcription": {"model": "w", "prompt": "Names", "keywords": ["Ada"]}}})
    found = config.recognition_of(session)
    assert (found.prompt, found.keywords, found.language) == ("Names", ("Ada",), "")
