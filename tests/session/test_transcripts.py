"""What the client is told of the user's words: partials, finals, failures."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.agreement import agreed, rest
from antiphon.session.features import Features

from .talk import Talk, of, wire

DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
FAILED = "conversation.item.input_audio_transcription.failed"


def partly(talk: Talk, text: str | None) -> list[dict[str, Any]]:
    gen = talk.gen("partial")
    talk.check.gens.pop(gen)
    return wire(talk.do(ev.PartialTranscript(gen, text)))


def speaking(**features: Any) -> Talk:
    talk = Talk(Features(partials=True, early=False, **features), update={"transcription": {"model": "w"}})
    talk.say(40)
    return talk


def test_partials_tell_only_what_two_readings_agree_on_and_never_take_it_back() -> None:
    talk = speaking()
    assert partly(talk, "ask not") == []
    talk.say(40)
    assert [e["delta"] for e in partly(talk, "ask not what your")] == ["ask not"]
    talk.say(40)
    assert [e["delta"] for e in partly(talk, "ask not what you can")] == [" what"]
    talk.say(40)
    assert partly(talk, "as not what") == [], "it was told already"
    talk.hush(20)
    told = talk.transcribe("ask not what your country can do")
    assert [e["delta"] for e in of(told, DELTA)] == [" your country can do"]
    assert talk.check.partials[told[0]["item_id"]] == talk.check.completed[told[0]["item_id"]]


def test_a_final_that_reads_otherwise_corrects_by_completed_alone() -> None:
    talk = speaking()
    partly(talk, "ice cream")
    talk.say(40)
    partly(talk, "ice cream")
    talk.hush(20)
    told = talk.transcribe("I scream")
    assert not of(told, DELTA) and of(told, COMPLETED)[0]["transcript"] == "I scream"


def test_partials_have_a_pace_one_at_a_time_and_step_back_under_load() -> None:
    talk = speaking(partial_every_s=1.0)
    assert talk.session.counts["partials"] == 1
    talk.say(100)
    assert talk.session.counts["partials"] == 1, "one at a time"
    partly(talk, None)
    talk.say(1)
    assert talk.session.counts["partials"] == 2, "one that failed or was skipped is no end of them"
    partly(talk, "x")
    talk.do(ev.Spare(partials=False))
    talk.say(100)
    assert talk.session.counts["partials"] == 2


def test_no_partials_without_transcription() -> None:
    talk = Talk(Features(partials=True))
    talk.say(100)
    assert not talk.check.gens


def test_a_partial_that_comes_after_the_turn_is_dropped() -> None:
    talk = speaking()
    gen = talk.gen("partial")
    talk.hush(20)
    assert gen in talk.check.aborted
    assert not wire(talk.do(ev.PartialTranscript(gen, "x")))


def test_failure_is_told_and_the_turn_is_answered() -> None:
    talk = Talk(update={"transcription": {"model": "w"}})
    talk.turn()
    failed = of(talk.transcribe(None), FAILED)[0]
    assert failed["error"]["code"] == "transcription_failed" and "param" not in failed["error"]
    assert talk.session.responses.active


def test_a_commit_in_mid_speech_ends_the_partial_that_is_being_read() -> None:
    talk = speaking()
    gen = talk.gen("partial")
    talk.command("input_audio_buffer.commit")
    assert gen in talk.check.aborted and gen not in talk.session.running


def test_the_next_turn_may_begin_before_the_last_transcript_comes() -> None:
    talk = Talk(Features(eager_transcript=False, early=False), update={"transcription": {"model": "w"}})
    talk.turn()
    first = talk.gen("final")
    talk.turn()
    second = talk.gen("final")
    for gen, text in ((second, "two"), (first, "one")):
        talk.check.gens.pop(gen)
        talk.do(ev.Transcribed(gen, text))
    assert list(talk.check.completed.values()) == ["two", "one"]


def test_what_biases_the_recogniser_goes_with_the_samples() -> None:
    talk = Talk(update={"transcription": {"model": "w", "prompt": "Ada", "keywords": ["Lovelace"], "language": "en"}})
    talk.say(10)
    talk.hush(2)
    asked = next(e for e in talk.effects if isinstance(e, ev.Transcribe))
    found = asked.recognition
    assert (found.prompt, found.keywords, found.language, asked.kind) == ("Ada", ("Lovelace",), "en", "guess")


@pytest.mark.parametrize(
    ("before", "now", "told", "delta"),
    [
        ("", "ab", "", ""),
        ("ab", "ab", "", "ab"),
        ("ab c", "ab", "", "ab"),
        ("ab c", "abc", "", ""),
        ("x ab", "x ac", "", "x"),
        ("a", "b", "", ""),
        ("Ask not.", "ask not, what", "", "ask not"),
        ("ask not, what your", "Ask not what your country", "ask not", " what your"),
        ("ask not what", "as not what", "ask not", ""),
        ("it’s, well", "It's well done", "", "It's well"),
        ("你好吗", "你好呀", "", "你好"),
        ("...", "... so", "", ""),
    ],
)
def test_what_two_readings_agree_on(before: str, now: str, told: str, delta: str) -> None:
    assert agreed(before, now, told) == delta


@pytest.mark.parametrize(
    ("told", "text", "untold"),
    [
        ("", "Hello.", "Hello."),
        ("what you can do", "What you can do.", "."),
        ("what you can", "What you can, they say", ", they say"),
        ("ice", "I scream", ""),
        ("so", "", ""),
    ],
)
def test_what_a_final_adds(told: str, text: str, untold: str) -> None:
    assert rest(told, text) == untold
