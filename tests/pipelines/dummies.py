"""Dummy stages that check the runtime's promises while they run. Stand-ins for models, in tests only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.pipelines.stage import Chunk, Emit, Fence, Progress, Ready, Reason, Request, Stage, Wait


@dataclass
class World:
    """A fake clock, and what the dummies saw go wrong."""

    now: float = 0.0
    wrong: list[str] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    stages: dict[str, Dummy] = field(default_factory=dict)
    step_cost: dict[str, float] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now


WORLD = World()
"""The world of the test that runs; a factory is a dotted path, so it finds its world here."""


def new_world() -> World:
    global WORLD
    WORLD = World()
    return WORLD


@dataclass
class Script:
    """What one request makes the dummies do. The request's body."""

    route: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    fail: tuple[str, str, int] | None = None
    fence_s: float | None = None
    streams: dict[str, frozenset[str]] = field(default_factory=dict)
    results: dict[str, frozenset[str]] = field(default_factory=dict)
    fenced_until: float = 0.0


class DummyTask:
    def __init__(self, request: Request, inputs: Any, now: float) -> None:
        self.request = request
        self.script: Script = request.body
        self.inputs = inputs
        self.opened_at = now
        self.chunks: deque[Any] = deque()
        self.over: set[str] = set()
        self.seen: dict[str, int] = {}
        self.done = 0
        self.steps = 0
        self.closed = False
        self.told: list[Progress] = []


class SlowFence(Fence):
    def __init__(self, world: World, until: float) -> None:
        self._world = world
        self._until = until

    def done(self) -> bool:
        return self._world.now >= self._until


class Dummy(Stage[DummyTask]):
    """kind: shot (one Result), ar (n chunks, one a step), xd (a transducer: ``take`` in, ``fanout`` out), tk (one in and
    one out, then a tail of its own), cut (as xd, but it ends after ``n`` steps whatever still comes)."""

    def __init__(
        self,
        name: str,
        kind: str = "shot",
        take: int = 1,
        span_ms: float = 0.0,
        delay_s: float = 0.0,
        fanout: int = 1,
        max_open: int = 8,
    ) -> None:
        self.name = name
        self.kind = kind
        self.take = take
        self.span_ms = span_ms
        self.delay_s = delay_s
        self.fanout = fanout
        self.max_open = max_open
        self.open_tasks = 0
        self.inside = False
        self.forgotten: list[str] = []
        self.conversations: list[str] = []
        self.world = WORLD
        self.world.stages[name] = self

    def wrong(self, text: str) -> None:
        self.world.wrong.append(f"{self.name}: {text}")

    def _enter(self, what: str, task: DummyTask | None = None) -> None:
        if self.inside:
            self.wrong(f"{what} from inside another call")
        if task is not None and task.closed:
            self.wrong(f"{what} after close")

    def _mishap(self, task: DummyTask, where: str) -> None:
        fail = task.script.fail
        if fail is not None and fail[:2] == (self.name, where) and fail[2] <= task.steps:
            raise RuntimeError(f"scripted {where}")

    def open(self, request: Request, inputs: Any) -> DummyTask:
        self._enter("open")
        task = DummyTask(request, inputs, self.world.now)
        needed = task.script.results.get(self.name, frozenset())
        if len(needed) > 1 and set(inputs) - needed:
            self.wrong(f"fan-in of strangers: {sorted(inputs)} of {sorted(needed)}")
        self._mishap(task, "open")
        self.open_tasks += 1
        self.world.opened += 1
        self.conversations.append(request.conversation)
        if self.open_tasks > self.max_open:
            self.wrong("more tasks open than max_open")
        return task

    def feed(self, task: DummyTask, chunk: Chunk) -> None:
        self._enter("feed", task)
        due = task.seen.get(chunk.source, 0)
        if chunk.index != due:
            self.wrong(f"chunk {chunk.index} of {chunk.source} came when {due} was due")
        task.seen[chunk.source] = due + 1
        if chunk.source in task.over:
            self.wrong("a chunk after the last")
        if chunk.last:
            task.over.add(chunk.source)
        else:
            task.chunks.append(chunk.data)
        if len(task.chunks) > self.take:
            self.wrong(f"{len(task.chunks)} chunks fed to a task that was hungry for {self.take}")
        self._mishap(task, "feed")

    def _input_over(self, task: DummyTask) -> bool:
        return task.script.streams.get(self.name, frozenset()) <= task.over

    def poll(self, task: DummyTask, now: float) -> Ready | Wait:
        self._enter("poll", task)
        self._mishap(task, "poll")
        hungry = len(task.chunks) < self.take
        if now < task.opened_at + self.delay_s:
            return Wait(task.opened_at + self.delay_s, hungry=hungry)
        if self.kind in ("shot", "ar"):
            return Ready()
        if self.kind == "tk":
            return Ready() if task.chunks or self._input_over(task) else Wait()
        return Ready(max(1, len(task.chunks))) if len(task.chunks) >= self.take or self._input_over(task) else Wait()

    def step(self, batch: Sequence[DummyTask], emit: Emit) -> None:
        self._enter("step")
        for task in batch:
            if task.closed:
                self.wrong("step after close")
            elif not isinstance(self.poll(task, self.world.now), Ready):
                self.wrong("stepped a task that is not Ready")
        self.inside = True
        self.world.now += self.world.step_cost.get(self.name, 0.0)
        try:
            exploding = False
            for task in batch:
                task.steps += 1
                fail = task.script.fail
                if fail is not None and fail[0] == self.name and fail[2] <= task.steps:
                    if fail[1] == "failure":
                        emit.failure(task, RuntimeError("scripted failure"))
                        continue
                    if fail[1] == "step":
                        exploding = True
                        continue
                self._advance(task, emit)
            if exploding:
                raise RuntimeError("scripted step")
        finally:
            self.inside = False

    def _advance(self, task: DummyTask, emit: Emit) -> None:
        count = task.script.counts.get(self.name, 3)
        over = self._input_over(task)
        if self.kind == "shot":
            emit.result(task, {"by": self.name, "inputs": task.inputs})
        elif self.kind == "ar":
            if task.done == count:
                emit.result(task, count)
            else:
                task.done += 1
                emit.chunk(task, task.done, self.span_ms)
        elif self.kind == "tk":
            if task.chunks:
                task.chunks.popleft()
            elif task.done >= count:
                emit.result(task, task.done)
                return
            task.done += 1
            emit.chunk(task, task.done, self.span_ms)
        else:
            for _ in range(min(self.take, len(task.chunks))):
                task.chunks.popleft()
            for _ in range(self.fanout):
                emit.chunk(task, task.done, self.span_ms)
            task.done += 1
            if (over and not task.chunks) or (self.kind == "cut" and task.done >= count):
                emit.result(task, task.done)

    def close(self, task: DummyTask, reason: Reason) -> Fence | None:
        self._enter("close")
        if task.closed:
            self.wrong("closed twice")
        task.closed = True
        self.open_tasks -= 1
        self.world.closed += 1
        self._mishap(task, "close")
        if task.script.fence_s is None:
            return None
        task.script.fenced_until = self.world.now + task.script.fence_s
        return SlowFence(self.world, task.script.fenced_until)

    def tell(self, task: DummyTask, progress: Progress) -> None:
        self._enter("tell", task)
        task.told.append(progress)

    def forget(self, conversation: str) -> None:
        self._enter("forget")
        self.forgotten.append(conversation)
