"""What one client may ask for at once: the graph's places are everybody's."""

from __future__ import annotations

from antiphon.session import events as ev

from .talk import Talk, of


def test_responses_beside_the_conversation_are_bounded_and_the_next_may_come_when_one_has_ended() -> None:
    talk = Talk()
    wanted = {"conversation": "none", "output_modalities": ["text"], "input": []}
    for _ in range(16):
        assert of(talk.command("response.create", response=wanted), "response.done") == []
    (done,) = of(talk.command("response.create", response={**wanted, "metadata": {"n": "17"}}), "response.done")
    assert done["response"]["status"] == "failed" and done["response"]["metadata"] == {"n": "17"}
    assert done["response"]["status_details"]["error"]["code"] == "rate_limit_exceeded"
    assert len(talk.check.gens) == 16, "nothing was asked of the graph for it"
    assert of(talk.command("response.create"), "response.done") == [], "the conversation itself is answered"
    talk.end(talk.gen("aside"))
    assert of(talk.command("response.create", response=wanted), "response.done") == []
    talk.close()


def committed(talk: Talk) -> str:
    talk.append(0.2)
    (event,) = of(talk.command("input_audio_buffer.commit"), "input_audio_buffer.committed")
    return str(event["item_id"])


def test_many_commits_are_read_a_few_at_a_time_and_all_of_them() -> None:
    talk = Talk(update={})
    talk.update(turn_detection=None, transcription={"model": "whisper-1"})
    items = [committed(talk) for _ in range(12)]
    assert list(talk.check.gens.values()) == ["final"] * 8
    talk.command("conversation.item.delete", item_id=items[9])  # one that waits
    talk.command("conversation.item.delete", item_id=items[0])  # one that is being read
    assert list(talk.check.gens.values()) == ["final"] * 8
    read = []
    while talk.check.gens:
        gen = next(iter(talk.check.gens))
        talk.check.gens.pop(gen)
        sent = [e.event for e in talk.do(ev.Transcribed(gen, "yes")) if isinstance(e, ev.Send)]
        read += [e["item_id"] for e in sent if e["type"].endswith("transcription.completed")]
    assert read == [item for n, item in enumerate(items) if n not in (0, 9)]
    talk.close()


def test_what_waits_to_be_read_is_not_read_after_the_end() -> None:
    talk = Talk(update={})
    talk.update(turn_detection=None, transcription={"model": "whisper-1"})
    for _ in range(10):
        committed(talk)
    talk.close()
