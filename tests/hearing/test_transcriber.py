"""The transcriber's bookkeeping on a stub recogniser: one run for all who ask, abort, deltas, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.prepared import Clip, Prepared, Transcripts
from antiphon.pipelines.local.transcriber import Hearing, Transcriber
from antiphon.pipelines.outputs import TranscriptDelta
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, Transcription
from antiphon.pipelines.stage import Ready, Request
from tests.hearing.stub_whisper import StubRecogniser

RATE = 16_000


class Driver:
    """One lane by hand: opens, polls, steps and closes as the runtime would."""

    def __init__(self) -> None:
        self.model = StubRecogniser()
        self.stage = Transcriber(vad=False)
        self.stage._model = self.model  # type: ignore[assignment]
        self.tasks: dict[str, Hearing] = {}
        self.chunks: dict[str, list[str]] = {}
        self.results: dict[str, Transcripts] = {}
        self.now = 0.0

    def open(self, name: str, *clips: Clip, body: GenerateRequest | None = None, conversation: str = "c") -> Hearing:
        body = body or GenerateRequest(id=name, task="transcription", terminals=("transcript",))
        request = Request(id=name, terminals=body.terminals, body=body, conversation=conversation)
        self.tasks[name] = self.stage.open(request, Prepared(body, clips))
        self.chunks[name] = []
        return self.tasks[name]

    def ready(self) -> list[str]:
        return [n for n, t in self.tasks.items() if isinstance(self.stage.poll(t, self.now), Ready)]

    def step(self, names: Sequence[str] | None = None) -> list[str]:
        """One step of these, or of all that are ready; who was in it."""
        names = self.ready() if names is None else names
        if names:
            self.stage.step([self.tasks[n] for n in names], self)
        return list(names)

    def run(self) -> None:
        for _ in range(200):
            self.now += 0.02
            self.step()
            if not self.tasks:
                return
        raise AssertionError("it never ends")

    def close(self, name: str, reason: Any = "aborted") -> Any:
        return self.stage.close(self.tasks.pop(name), reason)

    # Emit
    def _name(self, task: Hearing) -> str:
        return next(n for n, t in self.tasks.items() if t is task)

    def chunk(self, task: Hearing, data: Any, span_ms: float = 0.0) -> None:
        assert isinstance(data, TranscriptDelta)
        self.chunks[self._name(task)].append(data.text)

    def result(self, task: Hearing, data: Any = None) -> None:
        name = self._name(task)
        self.results[name] = data
        self.close(name, "finished")

    def failure(self, task: Hearing, error: Exception) -> None:
        raise error


def clip(key: str, seconds: float = 2.0) -> Clip:
    return Clip(key, np.full(int(seconds * RATE), 0.1, np.float32))


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_one_run_however_many_ask(driver: Driver) -> None:
    for name in ("shown", "thought", "third"):
        driver.open(name, clip("a"))
    assert driver.ready() == ["shown"], "the others wait for its result"
    driver.run()
    assert len(driver.model.encoded) == 1
    assert {r.results[0].text for r in driver.results.values()} == {"one two"}
    assert all("".join(c) == "one two" for c in driver.chunks.values())
    assert driver.stage.stats()["transcripts_shared"] == 2
    driver.open("later", clip("a"))
    driver.run()
    assert len(driver.model.encoded) == 1


def test_other_options_are_another_reading(driver: Driver) -> None:
    driver.open("one", clip("a"))
    options = Transcription(keywords=("Antiphon",))
    body = GenerateRequest(id="two", task="transcription", terminals=("transcript",), transcription=options)
    driver.open("two", clip("a"), body=body)
    driver.run()
    assert len(driver.model.encoded) == 2


def test_the_next_takes_over_when_the_one_who_reads_is_aborted(driver: Driver) -> None:
    driver.open("first", clip("a"))
    driver.open("second", clip("a"))
    driver.step()
    driver.close("first")
    assert driver.ready() == ["second"]
    driver.run()
    assert driver.results["second"].results[0].text == "one two"
    assert driver.stage._cache.in_flight == 0


def test_a_failing_step_keeps_nothing(driver: Driver) -> None:
    driver.open("first", clip("a"))
    driver.open("second", clip("a"))
    driver.model.failing = True
    with pytest.raises(RuntimeError):
        driver.step(["first"])
    driver.close("first", "failed")
    driver.model.failing = False
    driver.run()
    assert driver.results["second"].results[0].text == "one two"


def test_several_clips_in_order_and_only_the_last_is_shown(driver: Driver) -> None:
    driver.open("chat", clip("a", 1.0), clip("b", 3.0))
    driver.run()
    assert [r.text for r in driver.results["chat"].results] == ["one", "one two three"]
    assert "".join(driver.chunks["chat"]) == "one two three"


def test_the_same_clip_twice_in_one_request(driver: Driver) -> None:
    driver.open("chat", clip("a"), clip("b", 1.0), clip("a"))
    driver.run()
    assert [r.text for r in driver.results["chat"].results] == ["one two", "one", "one two"]
    assert len(driver.model.encoded) == 2


def test_a_transcript_that_came_with_the_audio_is_taken(driver: Driver) -> None:
    parts = (AudioPart(b"x", transcript="what the client says"), AudioPart(b"y"))
    body = GenerateRequest(id="chat", task="chat", terminals=("text",), messages=(Message("user", parts),))
    driver.open("chat", clip("a"), clip("b", 1.0), body=body)
    driver.run()
    assert [r.text for r in driver.results["chat"].results] == ["what the client says", "one"]


def test_no_sound_is_no_work(driver: Driver) -> None:
    driver.open("empty", Clip("e", np.zeros(0, np.float32)))
    driver.open("silent", Clip("s", np.full(RATE, 5e-4, np.float32)))
    driver.open("none")
    driver.run()
    assert driver.model.encoded == []
    assert [r.text for n in ("empty", "silent") for r in driver.results[n].results] == ["", ""]
    assert driver.results["none"].results == ()
    assert driver.results["silent"].results[0].duration == 1.0


def test_a_long_clip_is_told_as_it_is_read_and_no_step_does_more_than_a_window(driver: Driver) -> None:
    driver.open("long", clip("a", 100.0))
    before = 0
    for _ in range(100):
        driver.now += 0.02
        driver.step()
        assert sum(driver.model.encoded[before:]) <= 18.0
        before = len(driver.model.encoded)
    assert len(driver.chunks["long"]) >= 3
    assert "".join(driver.chunks["long"]) == driver.results["long"].results[0].text
    starts = [s.start for s in driver.results["long"].results[0].segments]
    assert starts == sorted(starts) and starts[-1] > 80


def test_several_requests_are_decoded_together(driver: Driver) -> None:
    for i in range(4):
        driver.open(str(i), clip(str(i)))
    driver.run()
    assert driver.model.batches == [4]


def test_nobody_waits_for_ever_behind_new_arrivals(driver: Driver) -> None:
    """A window that is encoded is decoded after one more step, whoever else comes."""
    driver.open("first", clip("first"))
    steps = 0
    while "first" in driver.tasks and steps < 10:
        driver.open(f"new{steps}", clip(f"new{steps}", 2.0 + steps))
        driver.step()
        steps += 1
    assert steps <= 4


def test_an_unsure_window_is_read_again_without_holding_the_lane(driver: Driver) -> None:
    driver.model.unsure = True
    driver.open("one", clip("a"))
    driver.step()
    driver.step()
    assert driver.model.pending and driver.ready() == []
    driver.open("two", clip("b", 3.0))
    assert driver.ready() == ["two"], "others go on"
    driver.close("two")
    driver.model.pending[0].finished = True
    driver.run()
    assert driver.results["one"].results[0].text == "one two"


def test_what_a_short_window_says_twice_is_taken_from_the_full_one(driver: Driver) -> None:
    """Though it was the surer of the two: saying things twice makes it so."""
    driver.model.twice = True
    driver.open("one", clip("a", 3.0))
    driver.step()
    driver.step()
    driver.model.pending[0].finished = True
    driver.run()
    assert driver.results["one"].results[0].text == "one two three"


def test_full_windows_are_read_one_after_another(driver: Driver) -> None:
    driver.model.unsure = True
    for name in ("one", "two"):
        driver.open(name, clip(name))
    for _ in range(6):
        driver.step()
    assert len(driver.model.pending) == 1 and driver.ready() == []
    driver.model.pending[0].finished = True
    for _ in range(3):
        driver.step()
    assert set(driver.results) == {"one"} and len(driver.model.pending) == 2
    driver.model.pending[1].finished = True
    driver.run()
    assert set(driver.results) == {"one", "two"}


def test_an_abort_waits_for_what_cannot_be_interrupted(driver: Driver) -> None:
    driver.model.unsure = True
    driver.open("one", clip("a"))
    driver.step()
    driver.step()
    fence = driver.close("one")
    assert fence is not None and not fence.done()
    driver.model.pending[0].finished = True
    assert fence.done()
    driver.open("two", clip("b"))
    assert driver.close("two") is None


def test_refusals_name_the_fault(driver: Driver) -> None:
    body = GenerateRequest(id="x", task="transcription", terminals=("transcript",))
    for options, word in ((Transcription(language="xx"), "xx"), (Transcription(temperature=3.0), "temperature")):
        with pytest.raises(Refused, match=word):
            driver.open("x", clip("a"), body=msgspec.structs.replace(body, transcription=options))
    assert driver.stage._cache.in_flight == 0


def test_the_language_of_a_conversation_is_remembered_until_forgotten(driver: Driver) -> None:
    driver.open("one", clip("a"), conversation="talk")
    driver.run()
    assert driver.stage._spoken["talk"] == "en"
    driver.stage.forget("talk")
    assert "talk" not in driver.stage._spoken


@pytest.mark.real
def test_the_real_stage_reads_a_recording(shared_audio: Any) -> None:
    from antiphon.pipelines.local.preprocessing import decode
    from tests.hearing.conftest import folder

    folder("whisper-base-ct2"), folder("silero-vad")
    driver = Driver()
    driver.stage = Transcriber()
    driver.stage.warm_up()
    part = AudioPart((shared_audio / "dog-or-cat.mp3").read_bytes(), "mp3")
    driver.open("one", decode(part))
    driver.run()
    text = driver.results["one"].results[0].text
    assert "".join(driver.chunks["one"]) == text
    assert text.lower() == "should i get a dog or a cat?"
