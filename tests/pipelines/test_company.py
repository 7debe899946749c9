"""A task may wait for its neighbours, so that one step serves them all: it must see what they are fed in the same turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.stage import Chunk, Emit, Ready, Request, Stage, Wait
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world

BATCHES: list[list[str]] = []


class TogetherTask:
    def __init__(self, name: str) -> None:
        self.name = name
        self.words: deque[Any] = deque()
        self.over = False

    @property
    def waits(self) -> bool:
        return not self.words and not self.over


class TogetherStub(Stage[TogetherTask]):
    """A frame a word; who has one waits up to a minute while somebody else has none."""

    def __init__(self) -> None:
        self.tasks: list[TogetherTask] = []

    def open(self, request: Request, inputs: object) -> TogetherTask:
        self.tasks.append(TogetherTask(request.id))
        return self.tasks[-1]

    def feed(self, task: TogetherTask, chunk: Chunk) -> None:
        if chunk.last:
            task.over = True
        else:
            task.words.append(chunk.data)

    def poll(self, task: TogetherTask, now: float) -> Ready | Wait:
        if task.waits:
            return Wait()
        return Wait(until=now + 60) if any(t.waits for t in self.tasks) else Ready()

    def step(self, batch: Sequence[TogetherTask], emit: Emit) -> None:
        BATCHES.append([task.name for task in batch])
        for task in batch:
            if task.words:
                task.words.popleft()
            else:
                self.tasks.remove(task)
                emit.result(task)


def test_who_waits_for_a_neighbour_sees_it_fed() -> None:
    world = new_world()
    BATCHES.clear()
    words = stage("words", "ar", stream_to=("together",), credits=1)
    together = StageConfig(
        name="together", factory=f"{__name__}:TogetherStub", lane="main", terminal="audio", max_open=8, max_batch=8
    )
    by_hand = ByHand(PipelineConfig("p", "words", [words, together]), world)
    bodies = [Script(counts={"words": 5}) for _ in range(3)]
    handles = [
        by_hand.coordinator.submit(Request(id=name, terminals=("audio",), body=body))
        for name, body in zip("abc", bodies, strict=True)
    ]
    by_hand.run(handles)
    # Five words and the end of each, in six steps of all three: whoever is asked first waits for none that has been served.
    assert [sorted(batch) for batch in BATCHES] == [["a", "b", "c"]] * 6
