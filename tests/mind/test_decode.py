"""The text terminal passes on what it is fed, in order, and ends with the finish reason and the usage."""

from __future__ import annotations

from typing import Any

from antiphon.pipelines.local.decode import Decode
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult, Usage
from antiphon.pipelines.stage import WAIT, Chunk, Ready, Request


class Said:
    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.ends: list[Any] = []

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self.chunks.append(data)

    def result(self, task: Any, data: Any = None) -> None:
        self.ends.append(data)

    def failure(self, task: Any, error: Exception) -> None:
        raise error


def test_deltas_then_the_result() -> None:
    stage, said = Decode(), Said()
    task = stage.open(Request(id="r"), None)
    assert stage.poll(task, 0.0) == WAIT
    sent: list[Any] = [TextDelta("a"), CallDelta(0, "c", "f", "{}")]
    end = TextResult("tool_calls", Usage(3, 1, 2))
    for i, data in enumerate([*sent, end]):
        stage.feed(task, Chunk("thinker", i, data))
    assert isinstance(stage.poll(task, 0.0), Ready)
    stage.step([task], said)
    assert said.chunks == sent and said.ends == [end]


def test_a_stream_that_ends_without_one_still_ends() -> None:
    stage, said = Decode(), Said()
    task = stage.open(Request(id="r"), None)
    stage.feed(task, Chunk("thinker", 0, None, last=True))
    stage.step([task], said)
    assert said.ends == [TextResult()]
