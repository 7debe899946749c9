"""What is made before it is needed: early answers, guesses, preparations, and that dropping them is saying nothing."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.request import Heard, Message

from .talk import Talk, kinds, of, wire


def maybe_over(talk: Talk) -> None:
    talk.say(10)
    talk.hush(3)


def test_the_early_answer_starts_at_maybe_over_and_is_released_by_the_end() -> None:
    talk = Talk(update={"transcription": {"model": "w"}})
    talk.say(10)
    spoken = talk.total
    talk.hush(2)
    early = talk.gen("early")
    assert talk.check.gens[talk.gen("guess")] == "guess", "and the transcript with it"
    assert talk.request.context == (Message("user", (Heard((0, spoken + 1024)),)),)
    assert not talk.make(early, "Hello.", 1), "held: no event"
    assert not wire(talk.do(ev.CallMade(early, "c", "f", "{}", True)))
    events = talk.hush(20)
    order = [type(e).__name__ for e in talk.effects]
    assert of(events, "response.created") and of(events, "response.output_audio.delta")
    assert of(events, "response.function_call_arguments.done")
    assert talk.session.counts["early_won"] == 1 and early in talk.session.running, order
    assert of(talk.end(early) + talk.wait(2), "response.done")


def test_resumed_speech_drops_both_and_nothing_was_said() -> None:
    talk = Talk(update={"transcription": {"model": "w"}})
    maybe_over(talk)
    early, guess = talk.gen("early"), talk.gen("guess")
    talk.make(early, "Hello.", 1)
    assert not talk.say(2)
    assert {early, guess} <= talk.check.aborted
    assert talk.session.counts["early_resumed"] == 1 and talk.session.counts["transcript_guesses_wasted"] == 1


def test_two_attempts_a_turn_and_no_more() -> None:
    talk = Talk()
    for _ in range(5):
        maybe_over(talk)
    assert talk.session.counts["early_started"] == 2 and talk.session.counts["transcript_guesses"] == 2
    assert of(talk.hush(20), "response.created"), "and the turn is answered all the same"


def test_a_long_turn_with_many_pauses_still_ends_with_an_early_answer() -> None:
    """Two at once, and one more for each 2 s of voice: not fewer for those who speak long, and never without end."""
    talk = Talk()
    for sentence in range(5):
        talk.say(64)  # 2.05 s
        for _ in range(3):
            talk.hush(4)
            talk.say(1)
        assert talk.session.counts["early_started"] == talk.session.counts["transcript_guesses"] == 2 + sentence
    talk.say(63)
    talk.hush(20)
    assert talk.session.counts["early_won"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": "Be rude."},
        {"tools": [{"type": "function", "name": "f"}]},
        {"audio": {"output": {"voice": "ash"}}},
        {"max_output_tokens": 9},
        {"audio": {"input": {"transcription": {"model": "w", "language": "de"}}}},
    ],
)
def test_an_answer_to_another_question_is_thrown_away(change: dict[str, Any]) -> None:
    talk = Talk()
    maybe_over(talk)
    early = talk.gen("early")
    talk.command("session.update", session={"type": "realtime", **change})
    events = talk.hush(20)
    assert early in talk.check.aborted and talk.gen() != early and of(events, "response.created")
    assert talk.session.counts["early_stale"] == 1


def test_a_new_item_makes_it_stale_but_metadata_of_nothing_does_not() -> None:
    talk = Talk()
    maybe_over(talk)
    early = talk.gen("early")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    talk.command("conversation.item.create", item=item)
    talk.hush(20)
    assert early in talk.check.aborted and len(talk.request.context) == 2


def test_one_that_failed_is_dropped_unseen_and_asked_again() -> None:
    talk = Talk()
    maybe_over(talk)
    early = talk.gen("early")
    assert not talk.end(early, "failed", error="boom")
    events = talk.hush(20)
    assert of(events, "response.created") and not of(events, "response.done") and talk.gen() != early


def test_one_that_had_finished_is_replayed_whole() -> None:
    talk = Talk()
    maybe_over(talk)
    early = talk.gen("early")
    talk.make(early, "Done.", 1)
    assert not talk.end(early)
    events = talk.hush(20)
    assert of(events, "response.created") and of(events + talk.wait(2), "response.done")[0]["response"]["output"]


def test_no_early_answer_while_one_runs_that_must_not_be_interrupted() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    talk.turn()
    maybe_over(talk)
    assert "early" not in talk.check.gens.values()


def test_switched_off_and_under_load() -> None:
    off = Talk(Features(early=False, eager_transcript=False))
    maybe_over(off)
    assert not off.check.gens
    busy = Talk()
    busy.do(ev.Spare(partials=False, early=False))
    maybe_over(busy)
    assert set(busy.check.gens.values()) == {"guess"}


def test_a_transcript_guess_becomes_the_items_transcript_without_a_second_reading() -> None:
    talk = Talk(update={"transcription": {"model": "w"}})
    maybe_over(talk)
    assert not talk.transcribe("hello", "guess"), "known, not told"
    events = talk.hush(20)
    done = of(events, "conversation.item.input_audio_transcription.completed")
    assert done[0]["transcript"] == "hello"
    assert kinds(events).index("conversation.item.done") < kinds(events).index(done[0]["type"])
    assert len([g for g in talk.check.ever if g.startswith("hear")]) == 1


def test_a_late_transcript_changes_no_request() -> None:
    talk = Talk(update={"transcription": {"model": "w"}})
    maybe_over(talk)
    talk.transcribe("hello", "guess")
    talk.hush(20)
    assert talk.session.counts["early_won"] == 1


def test_clear_and_commit_end_what_was_begun() -> None:
    for command in ("input_audio_buffer.clear", "input_audio_buffer.commit"):
        talk = Talk()
        maybe_over(talk)
        talk.command(command)
        assert not talk.check.gens, command


def test_no_answer_is_spent_on_a_first_syllable() -> None:
    talk = Talk()
    talk.say(5)  # 160 ms of voice, then the closure of a stop
    talk.hush(3)
    assert talk.session.counts["early_started"] == 0 and talk.session.counts["transcript_guesses"] == 1
    for _ in range(2):
        talk.say(8)
        talk.hush(3)
    assert talk.session.counts["early_started"] == 2
    talk.hush(20)
    assert talk.session.counts["early_won"] == 1


def test_prepare_is_asked_once_for_each_state_and_stops_before_the_answer() -> None:
    talk = Talk(Features(prepare=True), update={"instructions": "Long instructions."})
    prepared = talk.gen("prepare")
    assert talk.check.requests == {} and not talk.update(instructions="Long instructions.")[1:]
    assert talk.session.counts["prepared"] == 1
    talk.say(10)
    assert talk.session.counts["prepared"] == 1, "nothing is new"
    talk.hush(3)
    assert prepared in talk.check.aborted and talk.gen("early")
    talk.hush(20)
    talk.make(talk.gen(), "Hello.", 1)
    talk.end(talk.gen())
    talk.wait(2)
    talk.say(3)
    assert talk.session.counts["prepared"] == 2, "the talk so far is read while the user speaks"


def test_a_preparation_that_ended_is_not_aborted() -> None:
    talk = Talk(Features(prepare=True), update={"instructions": "x"})
    prepared = talk.gen("prepare")
    talk.end(prepared)
    talk.turn()
    assert prepared not in talk.check.aborted
