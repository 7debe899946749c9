"""Code2Wav: the talker's frames -> audio at 24 kHz, in blocks, sent as they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.pipelines.local.spoken import Frames
from antiphon.pipelines.local.synthesis import RATE, Synthesis
from antiphon.pipelines.outputs import AudioDelta, AudioResult, Mark
from antiphon.pipelines.stage import WAIT, Chunk, Emit, Inputs, Ready, Request, Stage, Wait


@dataclass(slots=True)
class _Task:
    block: int
    clause: Frames | None = None
    synthesis: Synthesis | None = None
    base: int = 0  # samples of the answer before this clause
    sent: int = 0
    mark: int = 0  # marks of this clause that have been sent
    over: bool = False


class Code2Wav(Stage[_Task]):
    """Emits AudioDelta chunks (float32, 24 kHz, their span the playing time), then AudioResult.

    ``first``: frames (12.5 ms) in an answer's first block; ``then``: in every other.
    """

    def __init__(self, first: int = 4, then: int = 16) -> None:
        self.first, self.then = first, then

    def open(self, request: Request, inputs: Inputs) -> _Task:
        return _Task(self.first)

    def feed(self, task: _Task, chunk: Chunk) -> None:
        if chunk.last:
            task.over = True
            return
        task.clause, task.synthesis = chunk.data, Synthesis(chunk.data)
        task.base, task.mark = task.sent, 0

    def poll(self, task: _Task, now: float) -> Ready | Wait:
        if task.synthesis is not None:
            return Ready(cost=min(task.block, max(1, task.synthesis.left)), hungry=False)
        return Ready(hungry=False) if task.over else WAIT

    def step(self, batch: Sequence[_Task], emit: Emit) -> None:
        for task in batch:
            if task.synthesis is None:
                emit.result(task, AudioResult(task.sent))
                continue
            pcm = task.synthesis.take(task.block)
            task.block = self.then
            task.sent += len(pcm)
            emit.chunk(task, AudioDelta(pcm, self._marks(task)), span_ms=len(pcm) * 1000 / RATE)
            if task.synthesis.left <= 0:
                task.synthesis = task.clause = None

    @staticmethod
    def _marks(task: _Task) -> tuple[Mark, ...]:
        assert task.clause is not None
        marks = []
        for mark in task.clause.marks[task.mark :]:
            if task.base + mark.sample > task.sent:
                break
            marks.append(Mark(task.base + mark.sample, mark.text_offset))
        task.mark += len(marks)
        return tuple(marks)
