"""The bytes behind the spans, and audio in and out of the wire's formats."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.outputs import AudioDelta, Mark
from antiphon.realtime.shell.finishing import Finisher
from antiphon.realtime.shell.hearing import Hearing
from antiphon.realtime.shell.pump import PIECE, Pieces
from antiphon.realtime.shell.store import AudioStore
from antiphon.session.events import InputAudio

PCM = {"type": "audio/pcm", "rate": 24_000}


def tone(rate: int, seconds: float, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_span_that_is_owned_or_not_forgotten_is_whole(data: st.DataObject) -> None:
    store, model = AudioStore("s"), np.zeros(0, np.float32)
    kept: set[tuple[int, int]] = set()
    forgotten = 0
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["push", "keep", "drop", "forget"]))
        if action == "push":
            new = np.arange(len(model), len(model) + data.draw(st.integers(0, 40_000)), dtype=np.float32)
            store.push(new)
            model = np.concatenate((model, new))
        elif action == "keep" and len(model) > forgotten:
            start = data.draw(st.integers(forgotten, len(model)))
            kept.add((start, data.draw(st.integers(start, len(model)))))
            for span in kept - store._kept.keys():
                store.keep(span)
        elif action == "drop" and kept:
            store.drop(kept.pop())
        elif action == "forget":
            forgotten = max(forgotten, data.draw(st.integers(0, len(model))))
            store.forget(forgotten)
        for span in [*kept, (forgotten, len(model))]:
            assert np.array_equal(store.samples(span), model[slice(*span)])
    assert store.total == len(model)


def test_an_idle_microphone_holds_little_memory_and_a_long_turn_gives_its_memory_back() -> None:
    store = AudioStore("s")
    for _ in range(30 * 50):
        store.push(np.zeros(320, np.float32))
        store.forget(store.total - 16_000)
    assert store.bytes < 600_000
    for _ in range(120 * 50):
        store.push(np.zeros(320, np.float32))
    assert store.bytes > 7_000_000
    store.forget(store.total)
    assert store.bytes < 600_000


@pytest.mark.parametrize(
    ("audio_format", "width"), [(PCM, 2), ({"type": "audio/pcm", "rate": 16_000}, 2), ({"type": "audio/pcmu"}, 1)]
)
def test_input_in_pieces_is_input_at_once(audio_format: dict[str, Any], width: int) -> None:
    rng = np.random.default_rng(1)
    rate = audio_format.get("rate", 8_000)
    data = rng.integers(0, 256, rate * width, dtype=np.uint8).tobytes()
    at_once, in_pieces = Hearing(audio_format), Hearing(audio_format)
    whole = at_once.feed(data)
    parts, start = [], 0
    for size in [1, 3, 639, 641, 0, 2, len(data)]:
        parts.append(in_pieces.feed(data[start : start + size]))
        start += size
    assert np.array_equal(np.concatenate(parts), whole)
    assert abs(len(whole) - 16_000) < 32  # a second in, a second out, but for the filter's look-ahead


def finisher(output: dict[str, Any], audio_input: dict[str, Any] = PCM, interrupts: bool = True) -> tuple[Finisher, AudioStore]:
    store = AudioStore("s")
    listening = {"format": audio_input, "turn_detection": {"interrupt_response": interrupts}}
    session = {"audio": {"input": listening, "output": {"format": output}}}
    numbers = iter(range(10**6))
    return Finisher(store, lambda: session, lambda kind: f"{kind}_{next(numbers)}"), store


def delta(pcm: np.ndarray) -> dict[str, Any]:
    ids = {"response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0}
    return {"type": "response.output_audio.delta", "delta": pcm, **ids}


def done() -> dict[str, Any]:
    return {**delta(np.zeros(0)), "type": "response.output_audio.done"} | {"delta": None}


def created(output_format: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": "r", "audio": {"output": {"format": output_format}}}}


def test_pcm_goes_out_sample_for_sample_with_an_id_each() -> None:
    ready, _ = finisher(PCM)
    ready.finish(created(PCM))
    voice = tone(24_000, 0.5)
    events = [e for part in np.array_split(voice, 7) for e in ready.finish(delta(part))]
    heard = np.frombuffer(b"".join(base64.b64decode(e["delta"], validate=True) for e in events), "<i2") / 32768
    assert len({e["event_id"] for e in events}) == 7
    assert np.allclose(heard, voice, atol=1 / 32768)
    assert [e["type"] for e in ready.finish(done())] == ["response.output_audio.done"]


@pytest.mark.parametrize("law", ["audio/pcmu", "audio/pcma"])
def test_g711_goes_out_whole_and_the_format_of_a_response_stays(law: str) -> None:
    ready, _ = finisher(PCM)  # the session says PCM, the response was created with G.711
    ready.finish(created({"type": law}))
    voice = tone(24_000, 0.5)
    events = [e for part in np.array_split(voice, 11) for e in ready.finish(delta(part))]
    events += ready.finish(done())
    assert events[-1]["type"] == "response.output_audio.done"
    data = b"".join(base64.b64decode(e["delta"]) for e in events[:-1])
    assert len(data) == 4_000  # half a second of 8 kHz, nothing lost at the end
    back = Hearing({"type": law}).feed(data)
    wanted = tone(16_000, 0.5)[: len(back)]
    assert np.corrcoef(back, wanted)[0, 1] > 0.99


def test_speech_that_interrupts_nothing_costs_an_answer_no_sample() -> None:
    ready, _ = finisher(PCM, interrupts=False)
    ready.finish(created({"type": "audio/pcmu"}))
    events = ready.finish(delta(tone(24_000, 0.1)))
    ready.finish({"type": "input_audio_buffer.speech_started", "item_id": "u"})
    events += ready.finish(done())[:-1]
    assert len(b"".join(base64.b64decode(e["delta"]) for e in events)) == 800


def test_after_an_interruption_not_even_the_filters_tail_goes_out() -> None:
    ready, _ = finisher(PCM)
    ready.finish(created({"type": "audio/pcmu"}))
    ready.finish(delta(tone(24_000, 0.1)))
    ready.finish({"type": "input_audio_buffer.speech_started", "item_id": "u"})
    assert [e["type"] for e in ready.finish(done())] == ["response.output_audio.done"]


def test_a_retrieved_item_carries_the_users_audio_unless_the_frame_would_be_too_large() -> None:
    ready, store = finisher(PCM)
    voice = tone(16_000, 60.0)
    store.push(voice)
    for seconds, there in ((2, True), (50, False)):
        part = {"type": "input_audio", "transcript": None, "audio": InputAudio((0, seconds * 16_000))}
        item = {"type": "message", "role": "user", "content": [part]}
        (event,) = ready.finish({"type": "conversation.item.retrieved", "item": item})
        (told,) = event["item"]["content"]
        assert ("audio" in told) is there
        assert told["transcript"] is None
        if there:
            assert len(base64.b64decode(told["audio"])) == seconds * 48_000
    assert isinstance(part["audio"], InputAudio)  # the conversation's own item is untouched


def test_a_long_chunk_is_cut_and_each_mark_goes_with_its_piece() -> None:
    pieces = Pieces("g")
    first = pieces.of(AudioDelta(np.zeros(PIECE * 2 + 10, np.float32), (Mark(10, 1), Mark(PIECE, 2), Mark(PIECE + 1, 3))))
    second = pieces.of(AudioDelta(np.zeros(100, np.float32), (Mark(PIECE * 2 + 110, 9),)))
    assert [p.samples for p in first + second] == [PIECE, PIECE, 10, 100]
    assert [p.marks for p in first + second] == [((10, 1), (PIECE, 2)), ((PIECE + 1, 3),), (), ((PIECE * 2 + 110, 9),)]
