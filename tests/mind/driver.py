"""Drives the Thinker as a lane would, several tasks at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from antiphon.pipelines.local.thinker import Thinker
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult
from antiphon.pipelines.requests import GenerateRequest, Message, Sampling, TextPart
from antiphon.pipelines.stage import Ready, Request


@dataclass(eq=False)
class Told:
    """What one task said."""

    task: Any
    chunks: list[Any] = field(default_factory=list)
    result: TextResult | None = None
    error: Exception | None = None
    ended: bool = False

    @property
    def text(self) -> str:
        return "".join(c.text for c in self.chunks if isinstance(c, TextDelta))

    @property
    def calls(self) -> list[tuple[str, str]]:
        made: dict[int, list[str]] = {}
        for c in self.chunks:
            if isinstance(c, CallDelta):
                made.setdefault(c.index, [c.name, ""])[1] += c.arguments
        return [(name, arguments) for name, arguments in made.values()]


class Lane:
    def __init__(self, thinker: Thinker) -> None:
        self.thinker = thinker
        self.told: dict[int, Told] = {}

    def open(self, body: GenerateRequest, **request: Any) -> Told:
        terminals = request.pop("terminals", body.terminals)
        asked = Request(id=body.id, terminals=terminals, body=body, conversation=body.conversation, **request)
        task = self.thinker.open(asked, body)
        self.told[id(task)] = told = Told(task)
        return told

    # Emit
    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        assert not self.told[id(task)].ended, "a chunk after the end"
        self.told[id(task)].chunks.append(data)

    def result(self, task: Any, data: Any = None) -> None:
        told = self.told[id(task)]
        assert not told.ended, "ended twice"
        told.result, told.ended = data, True

    def failure(self, task: Any, error: Exception) -> None:
        told = self.told[id(task)]
        assert not told.ended, "ended twice"
        told.error, told.ended = error, True

    def step(self, pick: Callable[[list[Told]], list[Told]] = lambda ready: ready) -> bool:
        """One step over those that are ready; False when none is."""
        ready = [t for t in self.told.values() if isinstance(self.thinker.poll(t.task, 0.0), Ready)]
        batch = pick(ready) if ready else []
        if not batch:
            return False
        self.thinker.step([t.task for t in batch], self)
        for told in [t for t in self.told.values() if t.ended]:
            self.close(told, "failed" if told.error else "finished")
        return True

    def close(self, told: Told, reason: Any = "aborted") -> None:
        del self.told[id(told.task)]
        self.thinker.close(told.task, reason)

    def run(self) -> None:
        while self.step():
            pass


def body(said: str | list[str], **more: Any) -> GenerateRequest:
    """A chat: user and assistant in turns, the last one is the user's."""
    texts = [said] if isinstance(said, str) else said
    roles = ["user", "assistant"]
    messages = tuple(Message(roles[i % 2], (TextPart(t),)) for i, t in enumerate(texts))  # type: ignore[arg-type]
    fields: dict[str, Any] = {"id": "r", "task": "chat", "terminals": ("text", "audio"), "messages": messages}
    return GenerateRequest(**fields | more)


def limited(tokens: int, **more: Any) -> Sampling:
    return Sampling(max_tokens=tokens, **more)


def answer(thinker: Thinker, asked: GenerateRequest, **request: Any) -> Told:
    lane = Lane(thinker)
    told = lane.open(asked, **request)
    lane.run()
    assert told.error is None, told.error
    return told
