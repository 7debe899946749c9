"""Items as clients make, place, read and delete them."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.request import Call, CallOutput, Clip, Heard, Image, Message, Text

from .talk import Talk, kinds, of


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def test_order_root_after_and_append() -> None:
    talk = Talk()
    for text, item_id, after in (("b", "b", None), ("a", "a", "root"), ("d", "d", None), ("c", "c", "b")):
        added = talk.command("conversation.item.create", item=user(text, id=item_id), previous_item_id=after)
        assert added[0]["previous_item_id"] == {"b": None, "a": None, "d": "b", "c": "b"}[item_id]
    talk.command("response.create")
    assert [entry.parts[0].text for entry in talk.request.context] == ["a", "b", "c", "d"]


def test_ids_are_kept_and_duplicates_and_strangers_refused() -> None:
    talk = Talk()
    talk.command("conversation.item.create", item=user("x", id="0123456789abcdef0123456789abcdef"))
    error = talk.command("conversation.item.create", item=user("y", id="0123456789abcdef0123456789abcdef"))[0]["error"]
    assert error["code"] == "item_create_duplicate_item_id"
    error = talk.command("conversation.item.create", item=user("y"), previous_item_id="nope")[0]["error"]
    assert error["param"] == "previous_item_id"
    for verb in ("retrieve", "delete"):
        error = talk.command(f"conversation.item.{verb}", item_id="nope")[0]["error"]
        assert error["code"] == f"item_{verb}_invalid_item_id" and "the item with id 'nope' does not exist" in error["message"]


def test_every_kind_of_part_reaches_the_model() -> None:
    talk = Talk()
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
        {"type": "input_audio", "audio": "AAAA", "transcript": "hm"},
    ]
    created = talk.command("conversation.item.create", item={"type": "message", "role": "user", "content": parts})
    shown = created[0]["item"]["content"]
    assert "audio" not in shown[2] and shown[2]["transcript"] == "hm"
    talk.command("response.create")
    assert talk.request.context == (
        Message(
            "user",
            (Text("look"), Image("data:image/png;base64,AA==", "low"), Clip("AAAA", ("audio/pcm", 24_000), "hm")),
        ),
    )
    item = talk.command("conversation.item.retrieve", item_id=created[0]["item"]["id"])[0]["item"]
    assert item["content"][2]["audio"] == "AAAA"


def test_client_audio_without_transcript_shows_null_which_a_client_needs() -> None:
    talk = Talk()
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA"}]}
    assert talk.command("conversation.item.create", item=item)[0]["item"]["content"][0] == {
        "type": "input_audio",
        "transcript": None,
    }


def test_older_names_of_parts_are_synonyms() -> None:
    talk = Talk()
    for role, given, shown in (
        ("assistant", {"type": "text", "text": "t"}, {"type": "output_text", "text": "t"}),
        ("assistant", {"type": "audio", "transcript": "t"}, {"type": "output_audio", "transcript": "t"}),
        ("user", {"type": "text", "text": "t"}, {"type": "input_text", "text": "t"}),
    ):
        item = {"type": "message", "role": role, "content": [given]}
        assert talk.command("conversation.item.create", item=item)[0]["item"]["content"] == [shown]


def test_history_with_calls() -> None:
    talk = Talk()
    call = {"type": "function_call", "name": "f", "call_id": "c1", "arguments": "{}"}
    talk.command("conversation.item.create", item=call)
    output = {"type": "function_call_output", "call_id": "c1", "output": ""}
    talk.command("conversation.item.create", item=output)
    talk.command("response.create")
    assert talk.request.context == (Call("c1", "f", "{}"), CallOutput("c1", ""))
    error = talk.command("conversation.item.create", item=dict(output, call_id="c2"))[0]["error"]
    assert (error["code"], error["param"]) == ("invalid_tool_call_id", "item.call_id")


def test_results_that_come_after_an_interruption_are_kept() -> None:
    """They were lost elsewhere, and the tools run twice. A call that comes after it is none."""
    talk = Talk()
    talk.command("response.create")
    gen = talk.gen()
    talk.make(gen, "Let me see.", 3)
    for n in (0, 1):
        talk.do(ev.CallMade(gen, f"c{n}", "f", "{}", True))
    (done,) = of(talk.say(10), "response.done")
    assert [(i["type"], i["status"]) for i in done["response"]["output"][1:]] == [("function_call", "completed")] * 2
    assert not talk.do(ev.CallMade(gen, "c2", "f", "{}", True))
    for n in (1, 0):
        output = {"type": "function_call_output", "call_id": f"c{n}", "output": str(n)}
        assert not of(talk.command("conversation.item.create", item=output), "error")
    talk.hush(20)
    called = (Call("c0", "f", "{}"), Call("c1", "f", "{}"), CallOutput("c1", "1"), CallOutput("c0", "0"))
    assert talk.request.context[:4] == called


WRONG: list[tuple[Any, str, str]] = [
    (None, "missing_required_parameter", "item"),
    ("x", "invalid_type", "item"),
    ({}, "missing_required_parameter", "item.type"),
    ({"type": "song"}, "invalid_value", "item.type"),
    ({"type": "mcp_call"}, "unsupported_value", "item.type"),
    ({"type": "message"}, "missing_required_parameter", "item.role"),
    ({"type": "message", "role": "dog"}, "invalid_value", "item.role"),
    ({"type": "message", "role": "user"}, "missing_required_parameter", "item.content"),
    ({"type": "message", "role": "user", "content": [3]}, "invalid_type", "item.content[0]"),
    ({"type": "message", "role": "user", "content": [{"type": "output_text", "text": ""}]}, "invalid_value",
     "item.content[0].type"),
    ({"type": "message", "role": "user", "content": [{"type": "input_text"}]}, "missing_required_parameter",
     "item.content[0].text"),
    ({"type": "message", "role": "user", "content": [{"type": "input_audio"}]}, "missing_required_parameter",
     "item.content[0].audio"),
    ({"type": "function_call"}, "missing_required_parameter", "item.name"),
    ({"type": "function_call_output", "call_id": "x"}, "missing_required_parameter", "item.output"),
    (user("x", id=5), "invalid_type", "item.id"),
]  # fmt: skip


@pytest.mark.parametrize(("item", "code", "param"), WRONG, ids=[p + "-" + c for _, c, p in WRONG])
def test_wrong_items_are_refused_by_their_path(item: Any, code: str, param: str) -> None:
    talk = Talk()
    error = talk.command("conversation.item.create", item=item, event_id="e")[0]["error"]
    assert (error["code"], error["param"], error["event_id"]) == (code, param, "e")
    assert not talk.session.conversation.order


def test_a_model_that_does_not_see_refuses_images_by_name() -> None:
    talk = Talk(Features(inputs=("text", "audio")))
    item = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    error = talk.command("conversation.item.create", item=item)[0]["error"]
    assert error["code"] == "unsupported_value" and "image" in error["message"]


def test_retrieved_speech_carries_its_samples_if_they_fit_a_frame() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    item_id = talk.check.items[0]
    part = talk.command("conversation.item.retrieve", item_id=item_id)[0]["item"]["content"][0]
    assert part["audio"] == ev.InputAudio(talk.check.owned[0])
    assert "audio" not in of(talk.check.wire, "conversation.item.added")[0]["item"]["content"][0]
    talk.turn(windows=400)
    long_id = of(talk.check.wire, "input_audio_buffer.committed")[-1]["item_id"]
    assert "audio" not in talk.command("conversation.item.retrieve", item_id=long_id)[0]["item"]["content"][0]


def test_deleting_speech_lets_its_samples_and_its_transcript_go() -> None:
    talk = Talk(Features(early=False), update={"transcription": {"model": "w"}})
    talk.turn()
    gen = talk.gen("final")
    assert kinds(talk.command("conversation.item.delete", item_id=talk.check.items[0])) == ["conversation.item.deleted"]
    assert not talk.check.kept and gen in talk.check.aborted


def test_deleting_the_item_of_a_running_response() -> None:
    talk = Talk()
    talk.command("response.create")
    talk.make(talk.gen(), "Speaking", 1)
    item_id = talk.check.items[-1]
    talk.command("conversation.item.delete", item_id=item_id)
    events = talk.make(talk.gen(), " on.") + talk.end(talk.gen())
    assert not [e for e in events if e["type"].startswith("conversation.item")]
    assert of(events, "response.output_item.done") and of(events, "response.done")


def test_an_item_created_while_a_response_runs_belongs_to_the_next() -> None:
    talk = Talk()
    talk.command("response.create")
    talk.make(talk.gen(), "Speaking")
    talk.command("conversation.item.create", item=user("and this"))
    talk.end(talk.gen())
    assert talk.request.context == ()
    talk.command("response.create")
    assert [entry.role for entry in talk.request.context] == ["assistant", "user"]


def test_speech_in_the_context_is_a_span_whether_or_not_it_was_transcribed() -> None:
    talk = Talk(Features(early=False), update={"transcription": {"model": "w"}})
    talk.turn()
    before = talk.request.context
    talk.transcribe("hello")
    talk.command("response.cancel")
    talk.command("response.create")
    assert talk.request.context == before == (Message("user", (Heard(talk.check.owned[0]),)),)


def test_old_speech_becomes_its_text() -> None:
    talk = Talk(Features(early=False, kept_audio_s=2.0), update={"transcription": {"model": "w"}})
    for n in range(4):
        talk.turn(40)
        talk.transcribe(f"turn {n}")
        talk.end(talk.gen())
    talk.turn(40)
    texts = [p.text for e in talk.request.context for p in e.parts if isinstance(p, Text)]
    assert texts[:2] == ["turn 0", "turn 1"]
    assert sum(b - a for a, b in talk.check.kept) <= 2 * 16_000 + 60 * 512


def test_old_speech_is_read_when_nobody_had_asked_for_its_text() -> None:
    talk = Talk(Features(early=False, eager_transcript=False, kept_audio_s=1.0))
    talk.turn(40)
    talk.end(talk.gen())
    talk.turn(40)
    assert not talk.transcribe("first", "final"), "the client did not ask to see it"
    talk.end(talk.gen())
    talk.turn(40)
    assert talk.check.owned[0] not in talk.check.kept


def test_a_long_talk_stays_small() -> None:
    """80 turns: what the shell must keep is bounded, and nothing of a turn outlives it."""
    talk = Talk(Features(kept_audio_s=20.0), update={"transcription": {"model": "w"}})
    for n in range(80):
        talk.turn(20)
        talk.transcribe(f"turn {n}")
        talk.make(talk.gen(), "An answer.", 1)
        talk.end(talk.gen())
        talk.wait(1.5)
    assert sum(b - a for a, b in talk.check.kept) <= 22 * 16_000
    assert not talk.session.running and not talk.session.responses._running
    assert len(talk.session.responses._listener._sounding) <= 1 and not talk.session.transcripts._readings
    assert talk.session.deadline == 100.0 + 3_600
