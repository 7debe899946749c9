"""The "text" terminal: what the Thinker says, passed on; its finish reason and usage as the Result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult
from antiphon.pipelines.stage import WAIT, Chunk, Emit, Inputs, Ready, Request, Stage, Wait


@dataclass(eq=False)
class Telling:
    deltas: list[TextDelta | CallDelta] = field(default_factory=list)
    result: TextResult | None = None


class Decode(Stage[Telling]):
    """Opened by the Thinker's first chunk. Chunks: TextDelta | CallDelta; Result: TextResult."""

    def open(self, request: Request, inputs: Inputs) -> Telling:
        return Telling()

    def feed(self, task: Telling, chunk: Chunk) -> None:
        if isinstance(chunk.data, TextResult):
            task.result = chunk.data
        elif chunk.last:
            task.result = task.result or TextResult()
        elif isinstance(chunk.data, TextDelta | CallDelta):
            task.deltas.append(chunk.data)

    def poll(self, task: Telling, now: float) -> Ready | Wait:
        return Ready(hungry=len(task.deltas) < 8) if task.deltas or task.result is not None else WAIT

    def step(self, batch: Sequence[Telling], emit: Emit) -> None:
        for task in batch:
            for delta in task.deltas:
                emit.chunk(task, delta)
            task.deltas.clear()
            if task.result is not None:
                emit.result(task, task.result)
