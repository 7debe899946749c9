"""Barge-in and truth: what stops, what was heard, what the model is told of it; pacing."""

from __future__ import annotations

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.playback import Ledger, word_end

from .talk import Talk, assistant, kinds, of, wire

WORDS = "One two three four five six seven eight nine ten"


def test_the_context_holds_only_what_was_heard_when_the_user_cut_in() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    talk.end(talk.gen())
    talk.wait(5.0 - 0.064)  # half of ten seconds, when the second window of speech is scored
    talk.turn(10)
    assert assistant(talk)[0].split() == WORDS.split()[:5]  # 24 of its 48 characters: "five" is the 23rd


def test_a_response_that_ended_before_is_marked_too_when_it_is_still_being_heard() -> None:
    talk = Talk(Features(window_s=float("inf"), early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    assert of(talk.end(talk.gen()), "response.done")
    talk.wait(2)
    events = talk.say(3)
    assert kinds(events) == ["input_audio_buffer.speech_started"], "nothing is left to cancel"
    talk.hush(20)
    assert len(assistant(talk)[0].split()) == 2


def test_a_response_heard_to_its_end_keeps_its_text() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 3)
    talk.end(talk.gen())
    talk.wait(3.2)
    talk.turn()
    assert assistant(talk) == [WORDS]


def test_what_the_model_makes_after_its_end_is_not_sent() -> None:
    """The end has come, the sound of it is still being paced out: a late piece would belong to an answer that is whole."""
    talk = Talk(Features(window_s=1.0, early=False))
    talk.turn()
    gen = talk.gen()
    events = talk.make(gen, WORDS, 4, chunk_s=0.5) + talk.end(gen)
    assert not of(events, "response.done"), "it is not over before its sound is sent"
    events += wire(talk.do(ev.TextMade(gen, " eleven"))) + wire(talk.do(ev.AudioMade(gen, b"pcm", 12_000)))
    events += talk.wait(6)
    assert len(of(events, "response.output_audio.delta")) == 8
    assert "".join(delta["delta"] for delta in of(events, "response.output_audio_transcript.delta")) == WORDS
    (done,) = of(events, "response.done")
    assert done["response"]["output"][0]["content"][0]["transcript"] == WORDS


def test_cut_before_the_first_audio_nothing_was_heard() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS)
    talk.turn()
    assert assistant(talk) == []


def test_truncate_replaces_the_mark_up_and_down_and_is_clamped() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    talk.wait(2)
    done = of(talk.say(3), "response.done")[0]
    item_id = done["response"]["output"][0]["id"]

    def truncate(ms: int) -> tuple[int, str]:
        told = talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=ms)
        item = talk.command("conversation.item.retrieve", item_id=item_id)[0]["item"]
        return told[0]["audio_end_ms"], item["content"][0]["transcript"]

    assert truncate(0) == (0, "")
    assert truncate(1_100)[1].split() == ["One"]
    shown, text = truncate(60_000)
    assert 5_900 < shown < 7_000, "no more than was sent"
    assert WORDS.startswith(text) and len(text.split()) >= 5


def test_what_follows_a_truncated_item_is_heard_at_once() -> None:
    talk = Talk(Features(window_s=float("inf"), early=False), update={"turn_detection": None})
    talk.command("response.create")
    talk.make(talk.gen(), WORDS, 10)
    talk.end(talk.gen())
    talk.wait(2)
    item_id = talk.check.items[-1]
    talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=2_000)
    talk.update(turn_detection={"type": "server_vad"})
    talk.command("response.create")
    talk.make(talk.gen(), WORDS, 10)
    talk.wait(5)
    talk.turn()
    first, second = assistant(talk)
    assert len(first.split()) == 2 and len(second.split()) == 5


def test_a_mark_beyond_what_was_sent_does_not_count_what_comes_later() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    gen = talk.gen()
    talk.make(gen, "One two", 2)
    item_id = talk.check.items[-1]
    told = talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=60_000)
    assert of(told, "conversation.item.truncated")[0]["audio_end_ms"] == 2_000
    talk.do(ev.TextMade(gen, " three four"))
    talk.do(ev.AudioMade(gen, b"pcm", 48_000, ((96_000, 18),)))
    talk.end(gen)
    talk.wait(5)
    assert assistant(talk) == ["One two"]


def test_nothing_more_of_an_answer_is_made_or_sent_once_its_client_has_truncated_it() -> None:
    """Clients whose user presses "stop" (RealtimeSession.interrupt of the Agents SDK) say only that."""
    talk = Talk(Features(early=False))
    talk.command("response.create")
    gen = talk.gen()
    talk.make(gen, WORDS, 20)
    item_id = talk.check.items[-1]
    events = talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=900)
    (done,) = of(events, "response.done")
    assert done["response"]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert kinds(events)[-1] == "conversation.item.truncated" and gen in talk.check.aborted
    assert not of(talk.wait(30), "response.output_audio.delta")
    # Those that also cancel, as the same SDK does without turn detection, have met no error; twice is one.
    assert talk.command("response.cancel") == []
    assert of(talk.command("response.cancel"), "error")
    talk.command("response.create")
    assert of(talk.command("response.cancel"), "response.done")


def test_truncate_of_a_user_item_or_a_wrong_part_is_refused() -> None:
    talk = Talk()
    talk.turn()
    item_id = talk.check.items[0]
    error = talk.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=5)[0]["error"]
    assert error["param"] == "item_id"
    error = talk.command("conversation.item.truncate", item_id="nope", content_index=0, audio_end_ms=5)[0]["error"]
    assert error["code"] == "item_truncate_invalid_item_id"


def test_no_audio_of_the_old_response_after_speech_started() -> None:
    talk = Talk()
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 20)
    talk.say(2)
    late = talk.do(ev.AudioMade(gen, b"pcm", 12_000)) + talk.do(ev.TextMade(gen, "more")) + talk.do(ev.Ended(gen))
    assert not late and not talk.wait(30)


def test_client_cancel_keeps_what_was_sent_and_no_more() -> None:
    talk = Talk(Features(early=False))
    talk.command("response.create")
    talk.make(talk.gen(), WORDS, 10)  # 4.5 s of it are sent
    talk.command("response.cancel")
    talk.command("response.create")
    assert len(assistant(talk)[0].split()) == 4


def test_client_cancel_before_any_audio_leaves_nothing_said() -> None:
    talk = Talk(Features(early=False))
    talk.command("response.create")
    talk.make(talk.gen(), WORDS)
    talk.command("response.cancel")
    talk.command("response.create")
    assert assistant(talk) == []


def test_what_goes_on_playing_after_a_client_cancel_is_cut_by_the_user() -> None:
    talk = Talk(Features(early=False))
    talk.command("response.create")
    talk.make(talk.gen(), WORDS, 10)  # 4.5 s of it are sent
    talk.command("response.cancel")
    talk.wait(2)
    talk.turn()
    assert len(assistant(talk)[0].split()) == 2


def test_marks_that_are_exact_are_kept_to_the_letter_and_others_rounded_down_to_a_word() -> None:
    exact, loose = Ledger(False), Ledger(False)
    for ledger, sure in ((exact, True), (loose, False)):
        ledger.send(24_000, ((8_000, 3), (24_000, 11)), sure, 0.0)
    text = "One two ten"
    assert exact.text_at(8_000, text) == 3
    assert exact.text_at(24_000, text) == 11
    assert text[: exact.text_at(16_000, text)] == "One two"
    assert text[: loose.text_at(14_000, text)].strip() == "One"
    assert loose.text_at(0, text) == 0


def test_marks_that_do_not_rise_say_nothing() -> None:
    ledger = Ledger(False)
    ledger.send(100, ((50, 4), (40, 9), (60, 2), (60, 6)), True, 0.0)
    assert ledger.marks == [(50, 4), (60, 6)]


@pytest.mark.parametrize(
    ("text", "offset", "end"),
    [
        ("ab cd", 4, 2),
        ("ab cd", 2, 2),
        ("ab cd", 5, 5),
        ("abcd", 2, 0),
        ("你好吗", 2, 2),
        ("ab, cd", 2, 2),
        ("it's so", 3, 0),
        ("नमस्ते जी", 4, 0),
    ],
)
def test_word_end(text: str, offset: int, end: int) -> None:
    assert word_end(text, offset) == end


def test_one_timeline_for_the_session() -> None:
    """Two answers sent at once are heard one after the other."""
    talk = Talk(Features(window_s=float("inf"), early=False))
    for _ in range(2):
        talk.command("response.create")
        talk.make(talk.gen(), WORDS, 10)
        talk.end(talk.gen())
    talk.wait(12)
    talk.turn()
    first, second = assistant(talk)
    assert first == WORDS and len(second.split()) == 2


def test_min_interruption_keeps_an_answer_through_a_cough() -> None:
    talk = Talk(Features(min_interruption_ms=500, early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 60)
    assert not of(talk.say(10) + talk.hush(10), "input_audio_buffer.speech_started")
    began = talk.total
    events = talk.say(20)
    assert of(events, "response.done")
    start = of(events, "input_audio_buffer.speech_started")[0]["audio_start_ms"]
    assert start == (began - 4_800) * 1000 // 16_000, "its beginning is not lost"


def test_progress_tells_the_graph_how_the_listener_stands() -> None:
    talk = Talk()
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 3)
    talk.wait(1.0)
    told = []
    for _ in range(20):
        talk.now += 0.05
        told += [e for e in talk.do(ev.Tick()) if isinstance(e, ev.Progress)]
    assert 4 <= len(told) <= 6
    assert told[-1].heard_ms == pytest.approx(2_000, abs=210) and told[-1].due_in_ms == pytest.approx(1_000, abs=210)
    assert told[-1].window_ms == 4_000


def test_without_marks_the_text_lies_evenly_over_what_was_sent() -> None:
    ledger = Ledger(False)
    ledger.send(24_000, (), True, 0.0)
    assert "One two ten"[: ledger.text_at(16_000, "One two ten")] == "One two"
    assert Ledger(False).text_at(16_000, "One") == 0


@pytest.mark.parametrize("exact", [True, False])
def test_an_answer_cut_in_its_first_word_leaves_nothing_said(exact: bool) -> None:
    """The text runs ahead of the sound, and the first mark stands at the end of the first word: 100 ms of it say nothing."""
    talk = Talk()
    talk.command("response.create")
    gen = talk.gen()
    added = of(wire(talk.do(ev.TextMade(gen, "Nobody says seven words in a moment."))), "conversation.item.added")
    talk.do(ev.AudioMade(gen, b"pcm", 2_400, (), exact))
    talk.now += 0.1
    talk.command("conversation.item.truncate", item_id=added[0]["item"]["id"], content_index=0, audio_end_ms=100)
    assert assistant(talk) == []
    talk.close()
