"""The user's silence after an answer, when a session asks to be told of it."""

from __future__ import annotations

from .talk import Talk, kinds, of


def test_idle_timeout() -> None:
    talk = Talk(update={"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}})
    talk.turn()
    talk.make(talk.gen(), "Are you there?", 2)
    talk.end(talk.gen())
    assert not talk.wait(6.9), "its audio is heard first"
    talk.hush(1)
    events = talk.wait(0.3)
    assert kinds(events) == [
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    assert len({events[0]["item_id"], events[1]["item_id"], events[2]["item"]["id"]}) == 1
    assert talk.request.context[-1].role == "user" and talk.request.context[-1].parts == ()


def test_an_idle_timeout_tells_the_whole_silence_of_an_open_microphone() -> None:
    """From the end of the last answer's playback to now, on the clock of the input."""
    talk = Talk(update={"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}})
    talk.turn()
    heard = talk.total * 1000 // 16_000 + 2000
    talk.make(talk.gen(), "Are you there?", 2)
    talk.end(talk.gen())
    (told,) = of(talk.hush(230), "input_audio_buffer.timeout_triggered")
    assert abs(told["audio_start_ms"] - heard) <= 64 and abs(told["audio_end_ms"] - heard - 5000) <= 64
