"""Over WebRTC the shell plays and tells: what was heard, cleared, cut."""

from __future__ import annotations

from typing import Any

from antiphon.session import events as ev
from antiphon.session.features import Features

from .talk import Talk, assistant, kinds, of, wire

WORDS = "One two three four five six seven eight nine ten"


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


def test_webrtc_audio_that_comes_after_the_queue_was_cleared_is_not_heard() -> None:
    talk = call()
    talk.turn()
    gen = talk.gen()
    talk.make(gen, WORDS, 1)
    talk.command("output_audio_buffer.clear")
    assert not [e for e in talk.do(ev.AudioMade(gen, b"pcm", 2_400)) if isinstance(e, ev.Play)]
    assert of(talk.end(gen), "response.done")
