"""The orders of events that real clients were seen to need (the protocol's section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.pipelines.outputs import Usage
from antiphon.session import events as ev
from antiphon.session.features import Features

from .talk import Talk, kinds, of, wire

USER_TEXT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
TEXT_RESPONSE = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
CLOSING_AUDIO = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]


def test_session_start_and_update() -> None:
    talk = Talk()
    created = talk.check.wire[0]
    assert created["type"] == "session.created"
    assert created["session"]["id"] == "sess_1" and type(created["session"]["expires_at"]) is int
    assert kinds(talk.update(instructions="Be brief.")) == ["session.updated"]
    assert talk.session.config["instructions"] == "Be brief."


def test_text_turn() -> None:
    talk = Talk(update={"output_modalities": ["text"]})
    added = talk.command("conversation.item.create", item=dict(USER_TEXT, id="mine"))
    assert kinds(added) == ["conversation.item.added", "conversation.item.done"]
    assert added[0]["item"]["id"] == "mine" and added[0]["item"]["status"] == "completed"
    events = talk.command("response.create", response={"metadata": {"client_event_id": "e7"}})
    events += talk.make(talk.gen(), "It ") + talk.make(talk.gen(), "is.") + talk.end(talk.gen())
    assert kinds(events) == TEXT_RESPONSE
    response = events[0]["response"]
    assert response["metadata"] == {"client_event_id": "e7"} and response["output_modalities"] == ["text"]
    assert events[3]["part"] == {"type": "text", "text": ""}
    done = events[-2]["response"]
    assert done["status"] == "completed" and done["metadata"] == {"client_event_id": "e7"}
    assert done["output"][0]["content"] == [{"type": "output_text", "text": "It is."}]
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (20, 7)
    assert done["usage"]["input_token_details"]["cached_tokens"] == 5
    assert events[2]["previous_item_id"] == "mine"
    talk.close()


def test_audio_output_is_interleaved_and_paced_while_text_is_not() -> None:
    talk = Talk(Features(window_s=4.0))
    talk.command("conversation.item.create", item=USER_TEXT)
    events = talk.command("response.create") + talk.make(talk.gen(), "Ten seconds of talk.", 10)
    assert len(of(events, "response.output_audio.delta")) == 9  # the window of 4 s, and the piece that crosses it
    events += talk.end(talk.gen())
    assert not of(events, "response.done"), "the end waits behind the audio"
    later = talk.wait(3.0)
    assert not of(later, "response.done")
    later += talk.wait(3.6)
    assert len(of(events + later, "response.output_audio.delta")) == 20
    assert kinds(later)[-7:] == CLOSING_AUDIO
    done = later[-2]["response"]
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "Ten seconds of talk."}]
    assert done["usage"]["output_token_details"] == {"text_tokens": 7, "audio_tokens": 200}


def test_an_infinite_window_sends_at_once() -> None:
    talk = Talk(Features(window_s=float("inf")))
    talk.command("response.create")
    events = talk.make(talk.gen(), "Long.", 60) + talk.end(talk.gen())
    assert len(of(events, "response.output_audio.delta")) == 120 and of(events, "response.done")


def test_manual_commit() -> None:
    talk = Talk(update={"turn_detection": None, "transcription": {"model": "whisper-1"}})
    talk.append(0.5)
    events = talk.command("input_audio_buffer.commit")
    assert kinds(events) == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
    item = events[1]["item"]
    assert item["id"] == events[0]["item_id"] and item["content"] == [{"type": "input_audio", "transcript": None}]
    told = talk.transcribe("hello")
    assert [event["type"].rsplit(".", 1)[1] for event in told] == ["delta", "completed"]
    assert told[1]["usage"] == {"type": "duration", "seconds": 0.5} and told[1]["item_id"] == item["id"]
    assert talk.command("conversation.item.retrieve", item_id=item["id"])[0]["item"]["content"][0]["transcript"] == "hello"


def test_server_vad_turn() -> None:
    talk = Talk(Features(early=False, eager_transcript=False), update={"transcription": {"model": "w"}})
    talk.hush(100)
    events = talk.turn()
    assert kinds(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    assert events[0]["audio_start_ms"] == 100 * 32 - 300, "milliseconds of audio received, minus the padding"
    # silence is counted from the last loud sample: 110 windows, and 500 ms, to the next append of 32 ms
    assert events[1]["audio_end_ms"] == 110 * 32 + 512
    assert {event["item_id"] for event in events[:3]} == {events[3]["item"]["id"]}
    assert [e["type"] for e in talk.transcribe("hi")][-1].endswith("completed")


def test_barge_in_on_an_unfinished_response() -> None:
    talk = Talk()
    talk.turn()
    talk.make(talk.gen(), "One two three four.", 8)
    talk.wait(1.0)
    events = talk.say(2)
    assert kinds(events) == ["input_audio_buffer.speech_started", *CLOSING_AUDIO]
    done = events[-2]["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert done["output"][0]["status"] == "incomplete"
    assert any(isinstance(e, ev.Abort) for e in talk.effects)
    item_id = done["output"][0]["id"]
    truncated = talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=2000)
    assert truncated == [{"type": "conversation.item.truncated", "item_id": item_id, "content_index": 0, "audio_end_ms": 2000}]
    item = talk.command("conversation.item.retrieve", item_id=item_id)[0]["item"]
    assert item["content"][0]["transcript"] == "One "


def test_interrupt_response_false_lets_it_finish_and_answers_afterwards() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    talk.turn()
    first = talk.gen()
    talk.make(first, "Going on.", 2)
    events = talk.turn()
    assert "response.done" not in kinds(events) and "input_audio_buffer.committed" in kinds(events)
    assert "response.created" not in kinds(events), "one active response"
    events = talk.end(first) + talk.wait(2)
    assert kinds(events)[-3:] == ["response.done", "rate_limits.updated", "response.created"]


def test_an_owed_answer_waits_while_the_user_speaks_again() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    talk.turn()
    first = talk.gen()
    talk.make(first, "Going on.", 1)
    talk.turn()
    talk.say(10)
    events = talk.end(first)
    assert of(events, "response.done") and not of(events, "response.created"), "in the middle of a turn"
    events = talk.hush(20)
    assert len(of(events, "response.created")) == 1
    assert len(talk.request.context) == 4, "one answer to both"


def test_an_owed_answer_is_dropped_by_a_barge_in() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    talk.turn()
    talk.make(talk.gen(), "Going on.", 2)
    talk.turn()
    talk.update(turn_detection={"type": "server_vad", "interrupt_response": True})
    events = talk.say(4)
    assert of(events, "response.done") and not of(events, "response.created")


def test_function_calls_in_parallel() -> None:
    talk = Talk(update={"output_modalities": ["text"]})
    events = talk.command("response.create")
    gen = talk.gen()
    for n in (0, 1):
        call = f"call_{n}"
        events += [e.event for e in talk.do(ev.CallMade(gen, call, "look", '{"a":')) if isinstance(e, ev.Send)]
        events += [e.event for e in talk.do(ev.CallMade(gen, call, "look", "1}", True)) if isinstance(e, ev.Send)]
    events += talk.end(gen)
    one = [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert kinds(events) == ["response.created", *one, *one, "response.done", "rate_limits.updated"]
    added = of(events, "response.output_item.added")
    assert [e["output_index"] for e in added] == [0, 1]
    assert added[0]["item"]["arguments"] == "" and added[0]["item"]["status"] == "in_progress"
    done = of(events, "response.output_item.done")
    assert done[1]["item"]["status"] == "completed" and done[1]["item"]["arguments"] == '{"a":1}'
    assert of(events, "response.function_call_arguments.done")[0]["name"] == "look"
    output = {"type": "function_call_output", "call_id": "call_0", "output": "7"}
    assert kinds(talk.command("conversation.item.create", item=output))[0] == "conversation.item.added"
    talk.command("response.create")
    assert [type(entry).__name__ for entry in talk.request.context] == ["Call", "Call", "CallOutput"]


def test_a_call_and_speech_in_one_response_and_the_output_before_its_end() -> None:
    talk = Talk()
    talk.command("response.create")
    gen = talk.gen()
    talk.make(gen, "Let me see.", 3)
    talk.do(ev.CallMade(gen, "call_9", "look", "{}", True))
    output = {"type": "function_call_output", "call_id": "call_9", "output": "ok"}
    assert kinds(talk.command("conversation.item.create", item=output)) == [
        "conversation.item.added",
        "conversation.item.done",
    ]
    talk.end(gen)
    done = of(talk.wait(3), "response.done") or of(talk.check.wire, "response.done")
    assert [item["type"] for item in done[0]["response"]["output"]] == ["message", "function_call"]


def test_what_was_written_before_a_call_ends_before_it_and_what_follows_is_another_item() -> None:
    talk = Talk(update={"output_modalities": ["text"]})
    talk.command("response.create")
    gen = talk.gen()
    events = talk.make(gen, "Let me see.") + wire(talk.do(ev.CallMade(gen, "call_9", "look", "{}", True)))
    events += talk.make(gen, "Done.") + talk.end(gen)
    ends = [(e["output_index"], e["item"]["type"], e["item"]["status"]) for e in of(events, "response.output_item.done")]
    assert ends == [(0, "message", "completed"), (1, "function_call", "completed"), (2, "message", "completed")]
    order = [e["output_index"] for e in events if "output_index" in e]
    assert order == sorted(order)
    assert [item.get("content", [{}])[0].get("text") for item in of(events, "response.done")[0]["response"]["output"]] == [
        "Let me see.", None, "Done.",
    ]  # fmt: skip


def test_out_of_band_runs_beside_the_conversation() -> None:
    talk = Talk()
    talk.turn()
    talk.make(talk.gen(), "Speaking.", 1)
    given = [dict(USER_TEXT), {"type": "item_reference", "id": talk.check.items[0]}]
    params = {"conversation": "none", "input": given, "metadata": {"topic": "x"}, "output_modalities": ["text"]}
    events = talk.command("response.create", response=params)
    aside = talk.gen("aside")
    assert len(talk.request.context) == 2
    events += talk.make(aside, "Label.") + talk.end(aside)
    assert not [e for e in events if e["type"].startswith("conversation.item")]
    assert events[0]["response"]["conversation_id"] is None and events[0]["response"]["metadata"] == {"topic": "x"}
    assert of(events, "response.done")
    talk.command("response.create", response=dict(params, input=[]))
    assert talk.request.context == ()


def test_client_cancel_and_its_race() -> None:
    talk = Talk()
    talk.command("response.create")
    talk.make(talk.gen(), "Never mind.", 6)
    events = talk.command("response.cancel")
    assert kinds(events) == CLOSING_AUDIO
    assert events[-2]["response"]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    error = talk.command("response.cancel", event_id="mine")[0]["error"]
    assert error["code"] == "response_cancel_not_active" and error["message"].startswith("Cancellation failed")
    assert error["event_id"] == "mine"
    assert of(talk.command("response.cancel", response_id="resp_none"), "error")


def test_cancel_by_id_reaches_an_out_of_band_response() -> None:
    talk = Talk()
    rid = talk.command("response.create", response={"conversation": "none", "input": []})[0]["response"]["id"]
    assert of(talk.command("response.cancel", response_id=rid), "response.done")


def test_transcription_session() -> None:
    talk = Talk(kind="transcription")
    session = talk.check.wire[0]["session"]
    assert session["type"] == "transcription" and session["object"] == "realtime.transcription_session"
    assert "output" not in session["audio"] and "instructions" not in session
    events = talk.turn() + talk.transcribe("hello")
    assert kinds(events) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ]
    assert not [e for e in talk.check.ever if e.startswith("gen")], "it never answers"
    assert of(talk.command("response.create"), "error")
    patch = {"type": "transcription", "audio": {"input": {"transcription": {"model": "w", "language": "de"}}}}
    assert talk.command("session.update", session=patch)[0]["session"]["audio"]["input"]["transcription"] == {
        "model": "w",
        "language": "de",
    }


@pytest.mark.parametrize("said", ["", "Half an ans"])
def test_failure_inside_a_response(said: str) -> None:
    talk = Talk()
    talk.turn()
    gen = talk.gen()
    events = (talk.make(gen, said, 1) if said else []) + talk.end(gen, "failed", error="The voice broke.")
    done = of(events, "response.done")[0]["response"]
    assert done["status"] == "failed"
    assert done["status_details"] == {
        "type": "failed",
        "error": {"type": "server_error", "code": "model_error", "message": "The voice broke."},
    }
    assert [item["status"] for item in done["output"]] == (["incomplete"] if said else [])
    talk.wait(3)
    assert "response.created" in kinds(talk.turn()), "the session goes on"


def test_what_the_pipeline_refuses_is_the_clients_fault() -> None:
    talk = Talk()
    talk.command("response.create")
    gen = talk.gen()
    talk.check.gens.pop(gen)
    effects = talk.do(ev.Ended(gen, "failed", error="No voice 'x'.", code="invalid_value"))
    done = of([e.event for e in effects if isinstance(e, ev.Send)], "response.done")[0]["response"]
    assert done["status_details"]["error"]["type"] == "invalid_request_error"


def test_token_limit() -> None:
    talk = Talk(update={"output_modalities": ["text"], "max_output_tokens": 5})
    talk.command("response.create", response={"max_output_tokens": 3})
    assert talk.request.max_tokens == 3
    talk.make(talk.gen(), "One two three")
    done = of(talk.end(talk.gen(), "length"), "response.done")[0]["response"]
    assert done["status"] == "incomplete" and done["max_output_tokens"] == 3
    assert done["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    assert done["output"][0]["status"] == "incomplete"


def test_a_response_of_nothing_has_no_empty_message() -> None:
    talk = Talk()
    talk.command("response.create")
    done = of(talk.end(talk.gen(), usage=Usage(3, 0, 0)), "response.done")[0]["response"]
    assert done["output"] == [] and done["status"] == "completed"


def test_second_default_response_is_refused() -> None:
    talk = Talk()
    rid = talk.command("response.create")[0]["response"]["id"]
    error = talk.command("response.create", event_id="e2")[0]["error"]
    assert error["code"] == "conversation_already_has_active_response" and rid in error["message"]
    assert error["event_id"] == "e2"


def test_lifetime() -> None:
    talk = Talk(Features(max_seconds=3600))
    talk.turn()
    talk.make(talk.gen(), "Still talking.", 1)
    talk.now += 3600
    events = [e.event for e in talk.do(ev.Tick()) if isinstance(e, ev.Send)]
    assert of(events, "response.done"), "every response that began has its end"
    assert events[-1]["error"]["code"] == "session_expired"
    text = "Your session hit the maximum duration of 60 minutes."
    assert events[-1]["error"]["message"] == text and talk.effects[-1] == ev.HangUp(1001, text)
    assert talk.session.closed and not talk.check.gens


def test_close_leaves_nothing_running() -> None:
    talk = Talk(Features(prepare=True, partials=True), update={"transcription": {"model": "w"}})
    talk.turn()
    talk.make(talk.gen(), "Speaking.", 1)
    talk.command("response.create", response={"conversation": "none", "input": []})
    talk.say(50)
    talk.close()


def test_a_response_keeps_the_configuration_it_began_with() -> None:
    talk = Talk(update={"instructions": "one", "tools": [{"type": "function", "name": "f"}]})
    params: dict[str, Any] = {"instructions": "two", "tools": [], "output_modalities": ["text"]}
    events = talk.command("response.create", response=params)
    assert talk.request.instructions == "two" and talk.request.tools == "[]"
    assert talk.session.config["instructions"] == "one" and len(talk.session.config["tools"]) == 1
    talk.update(output_modalities=["audio"])
    talk.make(talk.gen(), "Text.")
    events = talk.end(talk.gen())
    assert of(events, "response.output_text.done") and events[-2]["response"]["output_modalities"] == ["text"]
