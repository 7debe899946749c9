"""A hand driver for stages: opens, feeds, polls and steps as the runtime would, with a clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.pipelines.requests import GenerateRequest, Voice
from antiphon.pipelines.stage import Chunk, Ready, Request, Stage


class Emitted:
    """Collects what one task says."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.spans: list[float] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.ended = False


class Collector:
    def __init__(self) -> None:
        self.by_task: dict[int, Emitted] = {}

    def of(self, task: Any) -> Emitted:
        return self.by_task.setdefault(id(task), Emitted())

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        assert not self.of(task).ended
        self.of(task).chunks.append(data)
        self.of(task).spans.append(span_ms)

    def result(self, task: Any, data: Any = None) -> None:
        assert not self.of(task).ended
        self.of(task).result, self.of(task).ended = data, True

    def failure(self, task: Any, error: Exception) -> None:
        assert not self.of(task).ended
        self.of(task).error, self.of(task).ended = error, True


NORMAL = Voice()


def request(text: str = "", *, task: str = "chat", voice: Voice = NORMAL, **more: Any) -> Request:
    body = GenerateRequest(id="r", task=task, terminals=("audio",), text=text, voice=voice, **more)  # type: ignore[arg-type]
    return Request(id="r", terminals=("audio",), body=body)


def run(stage: Stage[Any], asked: Request, data: Iterable[Any] = (), now: float = 0.0) -> Emitted:
    """One task from open to its end: fed while hungry, stepped while ready, and nothing else."""
    out = Collector()
    task = stage.open(asked, None)
    waiting = [*(Chunk("up", i, piece) for i, piece in enumerate(data)), Chunk("up", -1, None, last=True)]
    emitted = out.of(task)
    while not emitted.ended:
        state = stage.poll(task, now)
        if state.hungry and waiting:
            stage.feed(task, waiting.pop(0))
            continue
        assert isinstance(state, Ready), f"stuck: {state}"
        before = len(emitted.chunks)
        stage.step([task], out)
        assert len(emitted.chunks) - before <= 4, "a handful a step at most"
    stage.close(task, "failed" if emitted.error else "finished")
    return emitted


def chain(stages: Sequence[Stage[Any]], asked: Request, data: Iterable[Any] = ()) -> Emitted:
    """Each stage run to its end on what the one before it said."""
    for stage in stages:
        emitted = run(stage, asked, data)
        if emitted.error:
            return emitted
        data = emitted.chunks
    return emitted
