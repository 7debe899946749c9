"""The segmenter as a stage: its patience, tool calls, what it refuses; on a clock of the test's own."""

from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.segmenter import Segmenter
from antiphon.pipelines.local.spoken import SpokenClause
from antiphon.pipelines.local.voices import can_speak
from antiphon.pipelines.outputs import CallDelta, TextDelta
from antiphon.pipelines.requests import Voice
from antiphon.pipelines.stage import Chunk, Ready, Wait
from tests.pipelines.local.driver import Collector, request, run

CALL = CallDelta(0, "call_1", "get_weather", "{}")


def texts(chunks: list[Any]) -> list[str]:
    assert all(isinstance(chunk, SpokenClause) for chunk in chunks)
    return [chunk.text for chunk in chunks]


class Stream:
    """A task of a segmenter whose text comes in at times."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stage = Segmenter(clock=lambda: self.now)
        self.out = Collector()
        self.task = self.stage.open(request(), None)
        self.said = self.out.of(self.task)

    def feed(self, data: Any = None, *, last: bool = False) -> None:
        self.stage.feed(self.task, Chunk("thinker", 0, data, last=last))
        self.settle()

    def settle(self) -> Wait:
        """Stepped while ready, as the runtime would."""
        for _ in range(20):
            state = self.stage.poll(self.task, self.now)
            if isinstance(state, Wait):
                return state
            self.stage.step([self.task], self.out)
            if self.said.ended:
                return Wait()
        raise AssertionError("ready for ever")


def test_waits_so_long_for_more_text_and_no_longer() -> None:
    stream = Stream()
    stream.feed(TextDelta("The weather in Lon"))
    assert stream.settle() == Wait(until=100.45, hungry=True)
    stream.now = 100.44
    stream.settle()
    assert not stream.said.chunks
    stream.now = 100.46
    assert stream.settle() == Wait(until=None, hungry=True)
    assert texts(stream.said.chunks) == ["The weather in,"]
    stream.feed(TextDelta("don is fine."), last=False)
    stream.feed(last=True)
    assert texts(stream.said.chunks) == ["The weather in,", "London is fine."]
    assert [(c.start, c.end) for c in stream.said.chunks] == [(0, 14), (15, 30)]


def test_text_that_keeps_coming_is_waited_for() -> None:
    stream = Stream()
    for piece in ("The ", "weather ", "in ", "London ", "is ", "fine"):
        stream.feed(TextDelta(piece))
        stream.now += 0.3
        stream.settle()
    assert not stream.said.chunks


def test_sentence_is_said_when_the_next_begins_without_waiting() -> None:
    stream = Stream()
    stream.feed(TextDelta("Hello there. "))
    assert not stream.said.chunks
    stream.feed(TextDelta("How"))
    assert texts(stream.said.chunks) == ["Hello there."]


def test_text_before_a_tool_call_is_said_at_once_and_the_call_is_not() -> None:
    stream = Stream()
    stream.feed(TextDelta("Let me look"))
    stream.feed(CALL)
    assert texts(stream.said.chunks) == ["Let me look,"]
    stream.feed(last=True)
    assert texts(stream.said.chunks) == ["Let me look,"]
    assert stream.said.ended and stream.said.error is None


@pytest.mark.parametrize("data", [[], [CALL], [TextDelta("😀")], [TextDelta("..."), TextDelta("!?")], [TextDelta(" \n")]])
def test_nothing_to_say_is_an_empty_valid_answer(data: list[Any]) -> None:
    said = run(Segmenter(), request(), data)
    assert said.ended and said.error is None and said.chunks == []


def test_text_of_a_speech_request_is_its_own() -> None:
    said = run(Segmenter(), request("Hello there. How are you?", task="speech"))
    assert texts(said.chunks) == ["Hello there.", "How are you?"]
    assert [(c.start, c.end) for c in said.chunks] == [(0, 12), (13, 25)]


def test_gap_follows_the_punctuation() -> None:
    said = run(Segmenter(), request(), [TextDelta("Of course I can, yes. Now then.\n\n" + "word " * 40)])
    gaps = [chunk.gap_ms for chunk in said.chunks]
    comma, sentence, line, cut = gaps[:4]
    assert line > sentence > comma > cut > 0


def test_megabyte_streams_out_while_it_is_read() -> None:
    stage, out = Segmenter(), Collector()
    task = stage.open(request("The fox jumps over the dog. " * 40_000, task="speech"), None)
    for _ in range(20):
        assert isinstance(stage.poll(task, 0.0), Ready)
        stage.step([task], out)
    assert len(out.of(task).chunks) == 20


def test_backlog_is_not_fed_while_there_is_something_to_cut() -> None:
    stage = Segmenter()
    task = stage.open(request(), None)
    stage.feed(task, Chunk("thinker", 0, TextDelta("One sentence. Another one. And a third one. ")))
    state = stage.poll(task, 0.0)
    assert isinstance(state, Ready) and not state.hungry


@pytest.mark.parametrize(
    ("voice", "told"),
    [
        (Voice(name="nosuch"), "no voice 'nosuch'; there are: heart"),
        (Voice(language="de"), "cannot speak 'de'"),
        (Voice(speed=0.2), "speed must lie between 0.25 and 4"),
        (Voice(speed=4.5), "speed must lie between 0.25 and 4"),
        (Voice(speed=float("nan")), "speed must lie between"),
    ],
)
def test_what_the_voice_cannot_do_is_told_by_name(voice: Voice, told: str) -> None:
    with pytest.raises(Refused, match=told):
        Segmenter().open(request("Hello", task="speech", voice=voice), None)


def test_speech_of_a_script_that_cannot_be_read_is_told_by_name() -> None:
    said = run(Segmenter(), request("Привет, как дела?", task="speech"))
    assert isinstance(said.error, Refused) and "Cyrillic" in str(said.error)
    assert said.error.code == "unsupported_language"


def test_one_foreign_text_does_not_fail_its_neighbours() -> None:
    stage, out = Segmenter(), Collector()
    tasks = [stage.open(request(text, task="speech"), None) for text in ("你好", "Hello.")]
    stage.step(tasks, out)
    assert isinstance(out.of(tasks[0]).error, Refused)
    assert texts(out.of(tasks[1]).chunks) == ["Hello."]


def test_languages() -> None:
    assert can_speak("") and can_speak("en") and can_speak("en-GB") and can_speak("EN_us")
    assert not can_speak("de") and not can_speak("zh-CN") and not can_speak("eng")
