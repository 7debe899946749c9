"""The beta dialect's names, both ways, against the table of the reference page."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.protocol import beta
from antiphon.realtime.protocol.beta import Beta
from antiphon.realtime.websocket import dialect_of
from antiphon.session import config
from antiphon.session.events import Command, Generate, Send
from antiphon.session.machine import Session


def translator() -> Beta:
    return Beta()


def ga_session(kind: config.Kind = "realtime") -> dict[str, Any]:
    return config.fresh("m", "sess_1", 1_800_000_000, kind)


def test_session_created_is_flat_and_followed_by_conversation_created() -> None:
    created, conversation = translator().from_ga({"type": "session.created", "session": ga_session()})
    session = created["session"]
    assert conversation == {
        "type": "conversation.created",
        "conversation": {"id": "conv_1", "object": "realtime.conversation"},
    }
    assert "type" not in session and "audio" not in session
    flat = {
        "id", "object", "model", "expires_at", "modalities", "instructions", "voice", "input_audio_format",
        "output_audio_format", "input_audio_transcription", "input_audio_noise_reduction", "turn_detection", "tools",
        "tool_choice", "temperature", "max_response_output_tokens", "speed", "tracing", "client_secret",
    }  # fmt: skip
    assert flat <= set(session)
    assert session["modalities"] == ["text", "audio"]
    assert (session["input_audio_format"], session["output_audio_format"]) == ("pcm16", "pcm16")
    assert session["turn_detection"]["type"] == "server_vad"
    assert session["temperature"] == 0.8


def test_the_conversation_that_is_announced_is_the_one_that_responses_name() -> None:
    session = Session(ga_session(), new_id=lambda kind: f"{kind}_7")
    (created,) = [effect.event for effect in session.begin(0.0) if isinstance(effect, Send)]
    _, conversation = translator().from_ga(created)
    (response, *_) = [e.event for e in session.handle(Command({"type": "response.create"}), 0.0) if isinstance(e, Send)]
    assert response["response"]["conversation_id"] == conversation["conversation"]["id"]


def test_an_error_speaks_of_the_field_by_the_name_that_the_client_gave_it() -> None:
    path = "session.audio.input.turn_detection.threshold"
    error = {"message": f"Invalid '{path}': too much.", "param": path}
    (told,) = translator().from_ga({"type": "error", "error": error})
    assert told["error"] == {
        "message": "Invalid 'session.turn_detection.threshold': too much.",
        "param": "session.turn_detection.threshold",
    }


@pytest.mark.parametrize(
    ("ga", "beta_name"),
    [
        ("session.audio.input.format.rate", "session.input_audio_sample_rate"),
        ("session.audio.input.format.type", "session.input_audio_format.type"),
        ("session.output_modalities[0]", "session.modalities[0]"),
        ("response.max_output_tokens", "response.max_response_output_tokens"),
    ],
)
def test_each_field_has_its_beta_name_in_errors(ga: str, beta_name: str) -> None:
    (told,) = translator().from_ga({"type": "error", "error": {"message": f"Invalid '{ga}'.", "param": ga}})
    assert told["error"] == {"message": f"Invalid '{beta_name}'.", "param": beta_name}


def test_a_flat_update_becomes_a_deep_one_with_only_its_keys() -> None:
    flat = {
        "modalities": ["text", "audio"],
        "voice": "alloy",
        "input_audio_format": "g711_ulaw",
        "output_audio_format": "g711_alaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": None,
        "temperature": 0.7,
        "max_response_output_tokens": 100,
    }
    edge = translator()
    told = edge.to_ga({"type": "session.update", "event_id": "e", "session": flat})
    assert told == {
        "type": "session.update",
        "event_id": "e",
        "session": {
            "type": "realtime",
            "output_modalities": ["audio"],
            "max_output_tokens": 100,
            "temperature": 0.7,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcmu"},
                    "transcription": {"model": "whisper-1"},
                    "turn_detection": None,
                },
                "output": {"voice": "alloy", "format": {"type": "audio/pcma"}},
            },
        },
    }
    merged = config.merged(ga_session(), told["session"])
    (updated,) = edge.from_ga({"type": "session.updated", "session": merged})
    for name, value in flat.items():
        assert updated["session"][name] == value


def test_sixteen_kilohertz_input_is_asked_for_by_its_rate() -> None:
    session = beta.session_to_ga({"input_audio_format": "pcm16", "input_audio_sample_rate": 16_000})
    assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 16_000}


def test_turn_detection_of_type_none_is_null() -> None:
    assert beta.session_to_ga({"turn_detection": {"type": "none"}})["audio"]["input"]["turn_detection"] is None


def test_an_unknown_format_is_refused_by_its_beta_name() -> None:
    with pytest.raises(ProtocolError) as caught:
        translator().to_ga({"type": "session.update", "event_id": "e", "session": {"input_audio_format": "mp3"}})
    assert (caught.value.param, caught.value.event_id) == ("session.input_audio_format", "e")


@pytest.mark.parametrize(
    ("ga", "old"),
    [
        ("response.output_audio.delta", "response.audio.delta"),
        ("response.output_audio.done", "response.audio.done"),
        ("response.output_audio_transcript.delta", "response.audio_transcript.delta"),
        ("response.output_audio_transcript.done", "response.audio_transcript.done"),
        ("response.output_text.delta", "response.text.delta"),
        ("response.output_text.done", "response.text.done"),
        ("response.output_item.added", "response.output_item.added"),
        ("input_audio_buffer.speech_started", "input_audio_buffer.speech_started"),
        ("rate_limits.updated", "rate_limits.updated"),
    ],
)
def test_names_of_server_events(ga: str, old: str) -> None:
    assert translator().from_ga({"type": ga, "x": 1}) == [{"type": old, "x": 1}]


def test_added_and_done_become_one_created() -> None:
    item = {"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "x"}]}
    added = translator().from_ga({"type": "conversation.item.added", "item": item, "previous_item_id": None})
    assert [e["type"] for e in added] == ["conversation.item.created"]
    assert added[0]["item"]["content"] == [{"type": "audio", "transcript": "x"}]
    assert translator().from_ga({"type": "conversation.item.done", "item": item, "previous_item_id": None}) == []
    assert item["content"][0]["type"] == "output_audio"  # what the session holds is untouched


def test_a_response_is_flat_and_its_items_have_beta_parts() -> None:
    response = {
        "id": "r",
        "object": "realtime.response",
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
        "output_modalities": ["text"],
        "max_output_tokens": "inf",
        "audio": {"output": {"format": {"type": "audio/pcmu"}, "voice": "verse"}},
        "metadata": {"a": "b"},
    }
    (done,) = translator().from_ga({"type": "response.done", "response": response})
    told = done["response"]
    assert told["output"][0]["content"] == [{"type": "text", "text": "x"}]
    assert (told["modalities"], told["voice"], told["output_audio_format"]) == (["text"], "verse", "g711_ulaw")
    assert told["metadata"] == {"a": "b"} and "audio" not in told and "output_modalities" not in told


def test_response_create_and_items_of_old_clients() -> None:
    edge = translator()
    create = {
        "type": "response.create",
        "response": {
            "modalities": ["text"],
            "voice": "echo",
            "max_response_output_tokens": 5,
            "temperature": 0.9,
            "input": [{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}],
        },
    }
    response = edge.to_ga(create)["response"]
    assert response["output_modalities"] == ["text"] and response["max_output_tokens"] == 5
    assert response["audio"] == {"output": {"voice": "echo"}}
    assert response["input"][0]["content"][0]["type"] == "output_text"
    item = {"type": "message", "role": "user", "content": [{"type": "text", "text": "hello"}]}
    assert edge.to_ga({"type": "conversation.item.create", "item": item})["item"]["content"][0]["type"] == "input_text"


def test_transcription_sessions_keep_their_own_event_names() -> None:
    edge = translator()
    (created,) = edge.from_ga({"type": "session.created", "session": ga_session("transcription")})
    assert created["type"] == "transcription_session.created"
    assert created["session"]["input_audio_format"] == "pcm16" and "voice" not in created["session"]
    update = edge.to_ga({"type": "transcription_session.update", "session": {"input_audio_format": "g711_alaw"}})
    assert update["type"] == "session.update"
    assert update["session"]["type"] == "transcription"


def test_arguments_done_has_no_name() -> None:
    done = {"type": "response.function_call_arguments.done", "name": "f", "arguments": "{}"}
    assert translator().from_ga(done) == [{"type": "response.function_call_arguments.done", "arguments": "{}"}]


def test_the_temperature_is_told_only_when_it_is_in_force_and_reaches_the_model() -> None:
    """It was kept beside the session: told also when the update was refused, out of range too, and never used."""
    session = Session(ga_session(), new_id=lambda kind: f"{kind}_7")
    dialect = translator()

    def say(event: dict[str, Any]) -> list[Any]:
        return session.handle(Command(dialect.to_ga(event)), 0.0)

    def told(effects: list[Any]) -> list[dict[str, Any]]:
        return [beta for e in effects if isinstance(e, Send) for beta in dialect.from_ga(e.event)]

    (error,) = told(say({"type": "session.update", "session": {"temperature": 0.7, "tool_choice": "perhaps"}}))
    assert error["error"]["param"] == "session.tool_choice"
    (error,) = told(say({"type": "session.update", "session": {"temperature": 7.0}}))
    assert error["error"]["param"] == "session.temperature"
    (updated,) = told(say({"type": "session.update", "session": {"instructions": "x"}}))
    assert updated["session"]["temperature"] == 0.8
    (updated,) = told(say({"type": "session.update", "session": {"temperature": 0.6}}))
    assert updated["session"]["temperature"] == 0.6
    effects = say({"type": "response.create"})
    assert [e.request.temperature for e in effects if isinstance(e, Generate)] == [0.6]
    assert told(effects)[0]["response"]["temperature"] == 0.6


@pytest.mark.parametrize("names", [["video"], [], ["text", "audio", "audio"]])
def test_modalities_that_are_none_are_refused_and_not_taken_for_text(names: list[str]) -> None:
    session = Session(ga_session(), new_id=lambda kind: f"{kind}_7")
    dialect = translator()
    asked = [{"type": "session.update", "session": {"modalities": names}}]
    asked += [{"type": "response.create", "response": {"modalities": names}}]
    for event in asked:
        (effect,) = session.handle(Command(dialect.to_ga(event)), 0.0)
        assert isinstance(effect, Send)
        (told,) = dialect.from_ga(effect.event)
        path = ("session" if event["type"] == "session.update" else "response") + ".modalities"
        assert told["type"] == "error" and told["error"]["param"].startswith(path)


@pytest.mark.parametrize(
    ("header", "dialect"),
    [("realtime=v1", "beta"), ("Realtime=V1", "beta"), ("assistants=v2, realtime=v1", "beta"), ("assistants=v2", "ga")],
)
def test_a_client_may_name_other_betas_beside_this_one(header: str, dialect: str) -> None:
    assert dialect_of({"openai-beta": header}, []) == dialect
