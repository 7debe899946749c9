"""A stand-in for ``pipelines.client.Client`` that plays a script: for tests of the REST doors, and of nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import Aborted, Refused
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, AudioResult, CallDelta, TextDelta, TextResult, Usage
from antiphon.pipelines.requests import GenerateRequest

INFO = PipelineInfo(
    name="stub",
    model="stub-voice",
    models={"thinker": "stub-thinker", "talker": "stub-talker"},
    terminals={"chat": ("text", "audio"), "speech": ("audio",), "transcription": ("transcript",)},
    inputs={"chat": ("text", "audio", "image"), "speech": ("text",), "transcription": ("audio",)},
    voices=("anna", "bert"),
    languages=("en",),
    context_tokens=2048,
)
TEXT_ONLY = PipelineInfo(name="text-only", model="stub-voice", terminals={"chat": ("text",)}, inputs={"chat": ("text",)})

Step = Event | float | Exception | asyncio.Event
"""An output, seconds to wait, an end, or a gate that the test opens."""
Script = Callable[[GenerateRequest], Sequence[Step]]


def tone(seconds: float, hz: float = 440.0) -> NDArray[np.float32]:
    t = np.arange(round(seconds * AUDIO_RATE)) / AUDIO_RATE
    return (0.4 * np.sin(2 * np.pi * hz * t)).astype(np.float32)


def text(*pieces: str, usage: Usage | None = None, finish: Any = "stop") -> list[Step]:
    return [
        *(Event("text", TextDelta(piece)) for piece in pieces),
        Event("text", TextResult(finish, usage or Usage(12, 4, len(pieces))), last=True),
    ]


def sound(pcm: NDArray[np.float32], chunk: int = 2001) -> list[Step]:
    cut = [pcm[i : i + chunk] for i in range(0, len(pcm), chunk)]
    return [*(Event("audio", AudioDelta(piece)) for piece in cut), Event("audio", AudioResult(len(pcm)), last=True)]


def calls(*named: tuple[str, str], pieces: int = 2) -> list[Step]:
    """Tool calls, their arguments in ``pieces`` pieces."""
    steps: list[Step] = []
    for n, (name, arguments) in enumerate(named):
        size = -(-len(arguments) // pieces)
        for i in range(0, len(arguments), size):
            last = i + size >= len(arguments)
            steps.append(Event("text", CallDelta(n, f"call_{n}", name, arguments[i : i + size], last)))
    return [*steps, Event("text", TextResult("tool_calls", Usage(20, 0, 9)), last=True)]


@dataclass
class StubGeneration:
    client: StubClient
    request: GenerateRequest
    steps: list[Step]
    timeline: dict[str, float] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None
    ended: bool = False
    _aborted: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aiter__(self) -> AsyncIterator[Event]:
        for step in self.steps:
            await self._wait_for(step)
            if self._aborted.is_set():
                raise Aborted(self.reason or "")
            if isinstance(step, Exception):
                self._end()
                raise step
            if isinstance(step, Event):
                self.timeline.setdefault(f"{'done' if step.last else 'first'}:{step.terminal}", time.monotonic())
                yield step
        self._end()

    async def _wait_for(self, step: Step) -> None:
        if isinstance(step, asyncio.Event):
            waiting = [asyncio.ensure_future(e.wait()) for e in (step, self._aborted)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        elif isinstance(step, float):
            await asyncio.sleep(step)

    def _end(self) -> None:
        self.ended = True
        self.timeline.setdefault("ended", time.monotonic())
        self.timeline |= {"queue:thinker": 0.001, "step:preprocessing": 0.002, "released": time.monotonic()}
        self.client.live.pop(self.request.id, None)

    def abort(self, reason: str = "client") -> None:
        if not self.ended:
            self.reason = reason
            self.timeline |= {"asked": time.monotonic(), "broadcast": time.monotonic(), "closed:main": time.monotonic()}
            self._aborted.set()
            self._end()

    def tell(self, **progress: Any) -> None:
        self.told.append(progress)

    async def released(self) -> dict[str, float]:
        return self.timeline


class StubClient:
    """``script`` says what a request gives; ``requests`` and ``generations`` keep what was asked."""

    def __init__(self, script: Script, info: PipelineInfo = INFO) -> None:
        self.script = script
        self.info = info
        self.generations: list[StubGeneration] = []
        self.live: dict[str, StubGeneration] = {}
        self.refuses: Exception | None = None
        self.warm = asyncio.Event()
        self.warm.set()
        self.fails: Exception | None = None
        self.lanes = {"main": "ready"}

    @property
    def requests(self) -> list[GenerateRequest]:
        return [generation.request for generation in self.generations]

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        await self.warm.wait()
        if self.fails is not None:
            raise self.fails

    async def stop(self) -> None:
        for generation in list(self.live.values()):
            generation.abort("shutdown")

    def generate(self, request: GenerateRequest) -> StubGeneration:
        if self.refuses is not None:
            raise self.refuses
        if request.id in self.live:
            raise Refused(f"request id {request.id!r} is in use", code="request_id_in_use", param="request_id")
        generation = StubGeneration(self, request, list(self.script(request)), {"submitted": time.monotonic()})
        self.generations.append(generation)
        self.live[request.id] = generation
        return generation

    def forget(self, conversation: str) -> None: ...

    def health(self) -> dict[str, Any]:
        return {"lanes": dict(self.lanes)}

    def stats(self) -> dict[str, Any]:
        return {"submitted": len(self.generations), "stages": {}}
