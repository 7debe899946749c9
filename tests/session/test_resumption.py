"""An answer that was cut by no speech goes on where it stopped (an option)."""

from __future__ import annotations

from typing import Any

from antiphon.session import events as ev
from antiphon.session.features import Features

from .talk import Talk, assistant, of

WORDS = "One two three four five six seven eight nine ten"


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
