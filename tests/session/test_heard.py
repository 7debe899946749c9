"""Barge-in and truth: what stops, what was heard, what the model is told of it; pacing; WebRTC."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.playback import Ledger, word_end
from antiphon.session.request import Message, Text

from .talk import Talk, kinds, of, wire

WORDS = "One two three four five six seven eight nine ten"


def assistant(talk: Talk) -> list[str]:
    """What the model would be told that it said."""
    talk.session.responses.active or talk.command("response.create")
    entries = [e for e in talk.request.context if isinstance(e, Message) and e.role == "assistant"]
    return ["".join(p.text for p in e.parts if isinstance(p, Text)) for e in entries]


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
    assert told[0]["audio_end_ms"] == 2_000
    talk.do(ev.TextMade(gen, " three four"))
    talk.do(ev.AudioMade(gen, b"pcm", 48_000, ((96_000, 18),)))
    talk.end(gen)
    talk.wait(5)
    assert assistant(talk) == ["One two"]


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


# ---- WebRTC: the shell plays and tells


def call(**features: Any) -> Talk:
    return Talk(Features(transport="webrtc", early=False, **features))


def plays(talk: Talk) -> list[ev.Play]:
    return [e for e in talk.effects if isinstance(e, ev.Play)]


def test_webrtc_audio_goes_to_the_loudspeaker_and_its_buffer_is_told() -> None:
    talk = call()
    talk.turn()
    gen = talk.gen()
    events = talk.make(gen, WORDS, 1)
    assert kinds(events)[-1] == "output_audio_buffer.started" and not of(events, "response.output_audio.delta")
    item = talk.check.items[-1]
    events = talk.end(gen)
    assert of(events, "response.done") and not of(events, "output_audio_buffer.stopped")
    talk.now += 1
    assert not wire(talk.do(ev.Played(item, 23_000)))
    assert kinds(wire(talk.do(ev.Played(item, 24_000)))) == ["output_audio_buffer.stopped"]
    talk.turn()
    assert assistant(talk) == [WORDS]


def test_webrtc_pacing_follows_what_was_played() -> None:
    talk = call(window_s=2.0)
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    item = talk.check.items[-1]
    talk.now += 100
    assert not [e for e in talk.do(ev.Tick()) if isinstance(e, ev.Play)], "nothing was played meanwhile"
    assert [e for e in talk.do(ev.Played(item, 24_000)) if isinstance(e, ev.Play)]


def test_webrtc_barge_in_clears_marks_and_tells() -> None:
    talk = call()
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    item, rid = talk.check.items[-1], talk.check.created[-1]
    talk.do(ev.Played(item, 2 * 24_000 + 100))
    talk.say(1)
    effects = talk.hear([(1.0, 511)])
    order = [e.event["type"] if isinstance(e, ev.Send) else type(e).__name__ for e in effects]
    assert order[0] == "input_audio_buffer.speech_started"
    assert order.index("response.done") < order.index("ClearPlayback") < order.index("output_audio_buffer.cleared")
    told = of(wire(effects), "conversation.item.truncated")[0]
    assert (told["item_id"], told["audio_end_ms"]) == (item, 2_004)
    assert of(wire(effects), "output_audio_buffer.cleared")[0]["response_id"] == rid
    talk.hush(20)
    assert assistant(talk)[0].split() == ["One", "two"]


def test_webrtc_client_clears_the_buffer_of_a_finished_response() -> None:
    talk = call()
    talk.turn()
    talk.make(talk.gen(), WORDS, 2)
    talk.end(talk.gen())
    events = talk.command("output_audio_buffer.clear")
    assert kinds(events) == ["output_audio_buffer.cleared", "conversation.item.truncated"]
    assert isinstance(talk.effects[0], ev.ClearPlayback)


def test_webrtc_client_interrupts_by_cancel_and_clear() -> None:
    talk = call()
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    item = talk.check.items[-1]
    talk.do(ev.Played(item, 48_000))
    assert of(talk.command("response.cancel"), "response.done")
    events = talk.command("output_audio_buffer.clear")
    assert kinds(events) == ["output_audio_buffer.cleared", "conversation.item.truncated"]
    assert events[1]["audio_end_ms"] == 2_000
    talk.command("response.create")
    assert assistant(talk)[0].split() == ["One", "two"]


def test_clearing_the_buffer_is_refused_over_websocket() -> None:
    assert "WebRTC" in Talk().command("output_audio_buffer.clear")[0]["error"]["message"]


# ---- an answer cut by no speech goes on (optional)


def cut_by_a_blip(talk: Talk, seconds: float) -> list[dict[str, Any]]:
    talk.wait(seconds)
    return talk.say(2) + talk.hush(20)


def test_an_answer_cut_by_no_speech_goes_on_where_it_stopped() -> None:
    talk = Talk(Features(resume_after_false_interruption=True, early=False))
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 10)
    events = cut_by_a_blip(talk, 5.0)
    assert of(events, "response.done")[0]["response"]["status"] == "cancelled"
    assert gen not in talk.check.aborted, "it was let run"
    again = of(events, "response.output_audio_transcript.delta")[0]
    assert again["delta"].split()[0] == "six"
    assert again["response_id"] == of(events, "response.created")[0]["response"]["id"]
    more = of(events + talk.wait(8), "response.output_audio.delta")
    assert len([e for e in more if e["response_id"] == again["response_id"]]) == 10
    assert of(talk.end(gen), "response.done")[0]["response"]["status"] == "completed"
    talk.command("response.create")
    assert " ".join(" ".join(assistant(talk)).split()) == WORDS
    assert talk.session.counts["resumed"] == 1


def test_what_a_finished_answer_had_left_goes_on_too() -> None:
    talk = Talk(Features(resume_after_false_interruption=True, early=False, window_s=float("inf")))
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    talk.end(talk.gen())
    events = cut_by_a_blip(talk, 4.9)
    assert of(events, "response.created") and of(events, "response.done")[-1]["response"]["status"] == "completed"


def test_speech_leaves_it_cut() -> None:
    talk = Talk(Features(resume_after_false_interruption=True, early=False))
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 10)
    talk.wait(2)
    talk.say(40)
    assert gen in talk.check.aborted
    talk.hush(20)
    assert talk.session.counts["resumed"] == 0 and talk.gen() != gen


def test_it_stays_cut_unless_the_option_is_on() -> None:
    talk = Talk(Features(early=False))
    talk.turn()
    talk.make(talk.gen(), WORDS, 10)
    assert not of(cut_by_a_blip(talk, 2.0), "response.created")


def test_what_is_made_while_it_is_cut_is_said_afterwards() -> None:
    talk = Talk(Features(resume_after_false_interruption=True, early=False))
    talk.turn()
    gen = talk.gen()
    talk.make(gen, "One two", 4)
    talk.wait(2)
    talk.say(2)
    assert not talk.do(ev.TextMade(gen, " three four")), "held"
    assert not talk.do(ev.AudioMade(gen, b"pcm", 24_000, ((120_000, 18),)))
    assert not talk.end(gen)
    events = talk.hush(20) + talk.wait(5)
    done = of(events, "response.done")[-1]["response"]
    assert done["status"] == "completed" and done["output"][0]["content"][0]["transcript"].split() == [
        "two",
        "three",
        "four",
    ]
    assert of(events, "rate_limits.updated") and not talk.session.running - {g for g in talk.check.gens}


def test_without_marks_the_text_lies_evenly_over_what_was_sent() -> None:
    ledger = Ledger(False)
    ledger.send(24_000, (), True, 0.0)
    assert "One two ten"[: ledger.text_at(16_000, "One two ten")] == "One two"
    assert Ledger(False).text_at(16_000, "One") == 0


def test_webrtc_audio_that_comes_after_the_queue_was_cleared_is_not_heard() -> None:
    talk = call()
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 1)
    talk.command("output_audio_buffer.clear")
    assert not [e for e in talk.do(ev.AudioMade(gen, b"pcm", 2_400)) if isinstance(e, ev.Play)]
    assert of(talk.end(gen), "response.done")
