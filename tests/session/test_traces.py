"""Scores that Silero v6 gave to recordings, replayed: which turns come of them, and when they stop.

``speech``: first and last sample of a 10 ms frame within 34 dB of the recording's loud ones (counted without the
network). Around each recording there is 1 s of silence before and 3 s after.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features

from .talk import Talk, of, wire

TRACES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "traces").glob("*.json"))}
NOISES = ["cough", "keys", "pink"]
SPEECH = sorted(set(TRACES) - set(NOISES))


def replay(name: str, silence_ms: int, **features: Any) -> tuple[Talk, list[dict[str, Any]]]:
    """A model answers whatever it is asked at once, so that the next turn is free."""
    detection = {"type": "server_vad", "silence_duration_ms": silence_ms}
    talk = Talk(Features(**features), update={"turn_detection": detection})
    events: list[dict[str, Any]] = []
    for p, loud in zip(TRACES[name]["scores"], TRACES[name]["loud"], strict=True):
        for start in range(0, 512, 256):  # 16 ms at a time: stops come between windows
            talk.total += 256
            talk.now += 0.016
            events += wire(talk.do(ev.AudioReceived(talk.total)))
            if start == 256:
                talk.scored += 512
                at = talk.scored - 512 + loud if loud >= 0 else -1
                events += wire(talk.do(ev.SpeechScored(talk.scored, p, at)))
        for gen in [g for g, what in talk.check.gens.items() if what == "answer"]:
            talk.end(gen)
    return talk, events


@pytest.mark.parametrize("name", NOISES)
def test_noise_starts_no_turn(name: str) -> None:
    _, events = replay(name, 500)
    assert not events


@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_whole_and_its_last_turn_stops_by_the_sample(name: str) -> None:
    talk, events = replay(name, 500)
    first, last = TRACES[name]["speech"]
    begun, ended = talk.check.owned[0][0], talk.check.owned[-1][1]
    assert begun <= first, "no first sound is lost"
    assert begun >= first - 16 * 700, "nor is a second of silence sent along"
    assert last <= ended + 160 <= last + 16 * 130, "the end is whole, and little more"
    stops = [e["audio_end_ms"] for e in of(events, "input_audio_buffer.speech_stopped")]
    assert last / 16 + 480 <= stops[-1] <= last / 16 + 500 + 50
    assert len(of(events, "response.created")) == len(stops)


def test_a_long_silence_makes_one_turn_of_a_sentence_and_a_short_one_several() -> None:
    turns = {ms: len(of(replay("ask-not", ms)[1], "input_audio_buffer.committed")) for ms in (200, 500, 1_000)}
    assert turns[1_000] <= turns[500] <= turns[200]
    assert turns[1_000] <= 3 and turns[200] >= 4


@pytest.mark.parametrize("name", SPEECH)
def test_early_answers_mostly_win_and_never_cost_more_than_two_a_turn(name: str) -> None:
    counts = replay(name, 200)[0].session.counts
    assert counts["early_won"] >= 1 and counts["early_started"] <= 2 * counts["turns"] + 2
    assert counts["early_started"] == counts["early_won"] + counts["early_resumed"] + counts["early_stale"]


@pytest.mark.parametrize("name", [name for name in SPEECH if name != "ask-not"])
def test_speech_cuts_an_answer_within_150_ms(name: str) -> None:
    """(The hall's noise before "ask not" counts as loud: its beginning is not known well enough.)"""
    talk = Talk()
    for p in TRACES[name]["scores"]:
        if wire(talk.hear([(p, -1)])):
            break
    assert talk.total / 16 - TRACES[name]["speech"][0] / 16 <= 150
