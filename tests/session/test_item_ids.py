"""Ids that the server has told and that a client gives to an item of its own."""

from __future__ import annotations

from typing import Any

from .talk import Talk, kinds, of


def message(item_id: str) -> dict[str, Any]:
    return {"id": item_id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": "mine"}]}


def test_the_id_of_speech_is_taken_from_its_start() -> None:
    """Its commit met an item of that id, and the conversation broke."""
    talk = Talk()
    (started,) = of(talk.say(), "input_audio_buffer.speech_started")
    (error,) = talk.command("conversation.item.create", item=message(started["item_id"]))
    assert error["error"]["code"] == "item_create_duplicate_item_id" and error["error"]["param"] == "item.id"
    (committed,) = of(talk.hush(), "input_audio_buffer.committed")
    assert committed["item_id"] == started["item_id"]


def test_it_stays_taken_when_the_detector_is_switched_off_and_is_free_when_the_buffer_was_cleared() -> None:
    talk = Talk()
    (started,) = of(talk.say(), "input_audio_buffer.speech_started")
    talk.update(turn_detection=None)
    (error,) = talk.command("conversation.item.create", item=message(started["item_id"]))
    assert error["error"]["code"] == "item_create_duplicate_item_id"
    talk.command("input_audio_buffer.clear")
    assert "conversation.item.added" in kinds(talk.command("conversation.item.create", item=message(started["item_id"])))


def test_an_answer_that_was_deleted_while_it_was_made_does_not_end_as_the_item_that_took_its_id() -> None:
    talk = Talk()
    talk.command("response.create")
    (added,) = of(talk.make(talk.gen(), "It is half past ten.", 1.0), "conversation.item.added")
    item_id = added["item"]["id"]
    talk.command("conversation.item.delete", item_id=item_id)
    talk.command("conversation.item.create", item=message(item_id))
    assert "response.output_item.done" in kinds(talk.end(talk.gen()))
    done = [e for e in talk.check.wire if e["type"] == "conversation.item.done" and e["item"]["id"] == item_id]
    assert [e["item"]["role"] for e in done] == ["user"]
