"""When a turn begins and ends: server_vad, semantic_vad, none; what noise does; how silence is dated."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.turn import PATIENCE, Detector, Turn, patience_ms

from .talk import Talk, kinds, of, wire

SEMANTIC = {"type": "semantic_vad"}


def stop_of(events: list[dict[str, Any]]) -> int | None:
    found = of(events, "input_audio_buffer.speech_stopped")
    return found[0]["audio_end_ms"] if found else None


def test_one_voiced_window_starts_nothing() -> None:
    talk = Talk()
    assert not talk.say(1) and not talk.hush(5)


def test_a_cough_of_weak_scores_starts_nothing() -> None:
    """Scores of Silero v6 over a recorded cough, its loudest replay included: they stay under 0.45."""
    scores = [0.06, 0.26, 0.11, 0.29, 0.12, 0.03, 0.02, 0.30, 0.05, 0.39, 0.09, 0.10, 0.34, 0.32, 0.21]
    talk = Talk()
    assert not wire(talk.hear([(p, 400) for p in scores] * 3))


def test_single_peaks_as_of_keys_start_nothing() -> None:
    talk = Talk()
    assert not wire(talk.hear([(0.9, 511), (0.1, -1), (0.1, -1)] * 20))


def test_two_clear_windows_start_a_turn_or_four_that_are_merely_voiced() -> None:
    talk = Talk()
    assert kinds(talk.say(2)) == ["input_audio_buffer.speech_started"]
    talk = Talk()
    assert not wire(talk.hear([(0.55, 511)] * 3))
    assert kinds(wire(talk.hear([(0.55, 511)]))) == ["input_audio_buffer.speech_started"]


def test_a_blip_is_announced_but_neither_answered_nor_kept() -> None:
    talk = Talk(Features(min_speech_ms=96))
    talk.hush(10)
    events = talk.say(2) + talk.hush(20)
    assert not of(events, "response.created")
    assert kinds(events)[-1] == "conversation.item.deleted"
    assert not talk.check.kept and not talk.session.conversation.items and not talk.check.gens


@pytest.mark.parametrize("features", [Features(), Features(eager_transcript=False)], ids=["guessed", "not guessed"])
def test_a_blip_has_a_transcript_like_every_commit_or_a_client_that_counts_them_waits_for_ever(features: Features) -> None:
    talk = Talk(features, update={"transcription": {"model": "w"}})
    talk.hush(10)
    events = talk.say(2) + talk.hush(20)
    committed = of(events, "input_audio_buffer.committed")[0]["item_id"]
    completed = of(events, "conversation.item.input_audio_transcription.completed")
    assert [(e["item_id"], e["transcript"]) for e in completed] == [(committed, "")]
    assert kinds(events)[-1] == "conversation.item.deleted" and not talk.check.gens


def test_a_known_blank_transcript_is_not_answered() -> None:
    talk = Talk(Features(early=False), update={"transcription": {"model": "w"}})
    talk.say(10)
    talk.hush(4)
    talk.transcribe(" ", "guess")
    events = talk.hush(16)
    assert of(events, "input_audio_buffer.committed") and not of(events, "response.created")


def test_create_response_false_commits_only() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "create_response": False}})
    events = talk.turn()
    assert of(events, "input_audio_buffer.committed") and not of(events, "response.created")
    assert "early" not in talk.check.gens.values()


def test_silence_is_counted_in_samples_and_dated_from_the_last_loud_one() -> None:
    """Silero lets go two windows late here; the stop comes by the sample all the same."""
    talk = Talk(update={"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}})
    talk.say(10)
    wire(talk.hear([(0.9, 100), (0.7, -1), (0.2, -1)]))
    last = talk.total - 3 * 512 + 101
    events: list[dict[str, Any]] = []
    while not stop_of(events):
        talk.total += 32
        talk.now += 0.002
        events += wire(talk.do(ev.AudioReceived(talk.total)))
        if talk.scored + 512 <= talk.total:
            talk.scored += 512
            events += wire(talk.do(ev.SpeechScored(talk.scored, 0.0, -1)))
    assert 0 <= talk.total - last - 3200 <= 32 + 512


def test_a_recording_sent_at_once_has_its_turns_where_it_was_spoken() -> None:
    """A minute of audio arrives in one go and its scores after it: two turns of 320 ms, 1 s apart, not one."""
    talk = Talk()
    talk.append(60.0)
    events: list[dict[str, Any]] = []
    for k, p in enumerate(([1.0] * 10 + [0.0] * 31) * 2 + [0.0] * 100):
        events += wire(talk.do(ev.SpeechScored((k + 1) * 512, p, (k + 1) * 512 - 1 if p else -1)))
    told = [
        (e["type"].rsplit("_")[-1], e.get("audio_start_ms", e.get("audio_end_ms"))) for e in events if "speech_" in e["type"]
    ]
    window = 32  # ms
    assert [name for name, _ in told] == ["started", "stopped", "started", "stopped"]
    assert told[0][1] == 0 and told[2][1] == 41 * window - 300
    for at, voiced in ((told[1][1], 10), (told[3][1], 51)):
        assert 500 <= at - voiced * window < 500 + window
    (first, second) = sorted(talk.check.owned)
    assert first[1] <= second[0] and second[0] == (41 * window - 300) * 16


def test_late_and_repeated_scores_are_behind_us() -> None:
    detector = Detector(0.5, 200)
    detector.on_audio(5120)
    assert detector.on_score(ev.SpeechScored(1024, 1.0)) is None
    assert detector.on_score(ev.SpeechScored(512, 0.0)) is None, "late: it must not end the beginning"
    assert detector.on_score(ev.SpeechScored(1024, 1.0)) is None, "repeated: it must not count twice"
    assert detector.on_score(ev.SpeechScored(1536, 1.0)) is Turn.STARTED


def test_without_loudness_windows_date_the_silence() -> None:
    detector = Detector(0.5, 100)
    end = 0
    decisions = []
    for p in [1.0] * 4 + [0.0] * 8:
        end += 512
        decisions += [detector.on_audio(end), detector.on_score(ev.SpeechScored(end, p))]
    assert [d for d in decisions if d] == [Turn.STARTED, Turn.MAYBE_OVER, Turn.STOPPED]
    assert detector.last_voiced == 4 * 512


def test_pre_roll_is_kept_through_a_long_silence() -> None:
    talk = Talk()
    talk.hush(500)
    assert talk.total - talk.check.floor < 3 * 16_000, "an open microphone costs nothing"
    talk.turn()
    start, _ = next(iter(talk.check.kept))
    assert start == 500 * 512 - 300 * 16


def test_pre_roll_never_reaches_into_the_last_turn() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "silence_duration_ms": 100}})
    talk.turn()
    talk.say(4)
    talk.hush(10)
    (_, end), (start, _) = sorted(talk.check.owned)
    assert end <= start


def test_manual_commit_uses_the_announced_id_and_resets() -> None:
    talk = Talk()
    started = talk.say(10)[0]
    events = talk.command("input_audio_buffer.commit")
    assert kinds(events)[:2] == ["input_audio_buffer.speech_stopped", "input_audio_buffer.committed"]
    assert events[1]["item_id"] == started["item_id"]
    assert not of(talk.hush(30), "input_audio_buffer.speech_stopped")


def test_switching_detection_off_in_speech_keeps_the_samples_and_the_id() -> None:
    talk = Talk()
    started = talk.say(10)[0]
    talk.update(turn_detection=None)
    talk.append(0.2)
    events = talk.command("input_audio_buffer.commit")
    assert of(events, "input_audio_buffer.committed")[0]["item_id"] == started["item_id"]
    assert talk.check.owned[0] == (0, talk.total)


def test_changing_detection_in_speech_keeps_the_turn() -> None:
    talk = Talk()
    talk.say(10)
    talk.update(turn_detection={"type": "server_vad", "silence_duration_ms": 200})
    events = talk.hush(8)
    assert stop_of(events) is not None and not of(events, "input_audio_buffer.speech_started")


def test_switching_detection_on_starts_empty_but_keeps_the_pre_roll() -> None:
    talk = Talk(update={"turn_detection": None})
    talk.hush(40)
    talk.update(turn_detection={"type": "server_vad"})
    talk.turn()
    assert talk.check.owned[0][0] == 40 * 512 - 300 * 16


def test_clear_forgets_and_the_clock_goes_on() -> None:
    talk = Talk(update={"turn_detection": None})
    talk.append(1.0)
    assert kinds(talk.command("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert talk.check.floor == 16_000
    error = talk.command("input_audio_buffer.commit", event_id="c")[0]["error"]
    assert error["code"] == "input_audio_buffer_commit_empty" and "0.00ms" in error["message"]
    talk.update(turn_detection={"type": "server_vad"})
    talk.scored = talk.total
    assert talk.say(3)[0]["audio_start_ms"] == 1000


def test_clear_in_speech_ends_the_turn_without_an_item() -> None:
    talk = Talk()
    talk.say(10)
    events = talk.command("input_audio_buffer.clear")
    assert kinds(events) == ["input_audio_buffer.speech_stopped", "input_audio_buffer.cleared"]
    assert not talk.hush(30) and not talk.check.gens


@pytest.mark.parametrize("command", ["input_audio_buffer.commit", "input_audio_buffer.clear"])
def test_scores_that_were_on_their_way_begin_no_turn_in_samples_that_are_gone(command: str) -> None:
    talk = Talk()
    talk.say(10)
    talk.append(4 * 512 / 16_000)  # heard, not yet scored
    talk.command(command)
    for n in range(1, 5):
        assert not wire(talk.do(ev.SpeechScored(talk.scored + n * 512, 1.0)))
    talk.scored += 4 * 512
    assert kinds(talk.say(2)) == ["input_audio_buffer.speech_started"]


def test_99_ms_are_too_little_to_commit() -> None:
    talk = Talk(update={"turn_detection": None})
    talk.append(0.099)
    message = talk.command("input_audio_buffer.commit")[0]["error"]["message"]
    assert message == (
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        "but buffer only has 99.00ms of audio."
    )
    talk.append(0.001)
    assert of(talk.command("input_audio_buffer.commit"), "input_audio_buffer.committed")


def test_endless_speech_becomes_items() -> None:
    talk = Talk(Features(early=False))
    events = talk.say(9_500)
    assert len(of(events, "input_audio_buffer.committed")) == 1 and of(events, "response.created")
    assert talk.session.hearing.speaking, "and the next turn goes on"


def test_a_buffer_that_is_never_committed_is_bounded_and_says_so() -> None:
    talk = Talk(update={"turn_detection": None})
    talk.append(899)
    assert not of(talk.check.wire, "error")
    talk.append(2)
    assert of(talk.check.wire, "error")[0]["error"]["code"] == "input_audio_buffer_overflow"
    assert talk.total - talk.check.floor == 450 * 16_000


# ---- semantic_vad


def score(talk: Talk, p: float | None) -> list[dict[str, Any]]:
    gen = talk.gen("score")
    talk.check.gens.pop(gen)
    return wire(talk.do(ev.TurnScored(gen, p)))


def silence_ms(talk: Talk, p: float | None, windows: int = 100, answer: bool = True) -> float:
    """Silence from the last voiced sample to the stop, with this score."""
    events = talk.say(windows)
    last = talk.total
    events += talk.hush(2)
    if answer:
        events += score(talk, p)
    while stop_of(events) is None:
        events += talk.hush(1)
    return stop_of(events) - last * 1000 // 16_000  # type: ignore[operator]


@pytest.mark.parametrize("eagerness", ["low", "medium", "high", "auto"])
def test_a_complete_utterance_ends_soon_and_an_incomplete_one_later_but_well_below_the_protocols_maximum(
    eagerness: str,
) -> None:
    most = {"low": 8_000, "medium": 4_000, "auto": 4_000, "high": 2_000}[eagerness]
    waits = [silence_ms(Talk(update={"turn_detection": dict(SEMANTIC, eagerness=eagerness)}), p) for p in (0.9, 0.0)]
    assert waits[0] <= 450 and waits[0] < waits[1] <= most / 2 + 32


def test_a_short_utterance_does_not_wait_long_whatever_its_score() -> None:
    short = silence_ms(Talk(update={"turn_detection": SEMANTIC}), 0.06, windows=30)
    long = silence_ms(Talk(update={"turn_detection": SEMANTIC}), 0.06, windows=100)
    assert short <= 750 < long


def test_no_score_and_a_failed_one_wait_a_bounded_time_and_are_counted() -> None:
    late, failed = Talk(update={"turn_detection": SEMANTIC}), Talk(update={"turn_detection": SEMANTIC})
    assert silence_ms(late, None, answer=False) <= 750 and late.session.counts["turn_scores_late"] == 1
    assert silence_ms(failed, None) <= 750 and failed.session.counts["turn_scores_failed"] == 1


def test_resumed_speech_asks_again_and_the_old_score_is_dropped() -> None:
    talk = Talk(update={"turn_detection": SEMANTIC})
    talk.say(50)
    talk.hush(2)
    old = talk.gen("score")
    talk.say(3)
    assert old in talk.check.aborted
    assert not wire(talk.do(ev.TurnScored(old, 1.0)))
    talk.hush(2)
    assert talk.gen("score") != old
    assert not wire(talk.do(ev.TurnScored(old, 1.0))) and stop_of(talk.hush(8)) is None


def test_patience_never_exceeds_the_eagerness_and_falls_with_the_score() -> None:
    for eagerness, patience in PATIENCE.items():
        waits = [patience_ms(p / 100, eagerness, 5_000) for p in range(101)]
        assert waits == sorted(waits, reverse=True)
        assert waits[0] == patience.incomplete and waits[100] == patience.complete
