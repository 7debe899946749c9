"""Stand-ins for the graph and the ears, with scripted delays: for tests of the doors, and of nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import Aborted
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.outputs import (
    AudioDelta,
    AudioResult,
    CallDelta,
    Mark,
    TextDelta,
    TextResult,
    TranscriptResult,
    Usage,
)
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Listener
from antiphon.session.events import WINDOW, SpeechScored

INFO = PipelineInfo(
    name="stub",
    model="stub-voice",
    terminals={"chat": ("text", "audio"), "transcription": ("transcript",), "speech": ("audio",)},
    inputs={"chat": ("text", "audio")},
    voices=("default", "stub"),
    languages=("en",),
    early_responses=True,
    context_tokens=4096,
)


@dataclass
class Script:
    """What the stub answers. ``fail``: raised in the middle of an answer. ``asr_s`` and the others are delays.
    ``hold``: the last word waits until it is set.
    """

    words: tuple[str, ...] = ("It", " is", " half", " past", " ten", ".")
    tokens_a_word: int = 1
    transcript: str = "what time is it now"
    asr_s: float = 0.0
    first_token_s: float = 0.0
    token_s: float = 0.0
    first_audio_s: float = 0.0
    audio_s: float = 1.0
    chunk_s: float = 0.08
    realtime_factor: float = 0.0
    fail: Exception | None = None
    refuse: Exception | None = None
    hold: asyncio.Event | None = None


@dataclass
class StubWork:
    request: GenerateRequest
    script: Script
    on_end: Callable[[StubWork], None]
    timeline: dict[str, float] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0
    _aborted: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.timeline["submitted"] = time.monotonic()

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            async for event in self._events():
                if self._aborted.is_set():
                    raise Aborted("client")
                self.made += 1
                yield event
        finally:
            self.on_end(self)

    async def _events(self) -> AsyncIterator[Event]:
        s, r = self.script, self.request
        if r.kind == "prepare":
            return
        if r.task == "transcription":
            await self._sleep(s.asr_s)
            yield Event("transcript", TranscriptResult(s.transcript), last=True)
            return
        await self._sleep(s.first_token_s)
        if r.tool_choice.mode in ("function", "required") and r.tools:
            name, half = r.tool_choice.name or r.tools[0].name, '{"city": '
            yield Event("text", CallDelta(0, f"call_{r.id[-8:]}", name, half))
            yield Event("text", CallDelta(0, f"call_{r.id[-8:]}", name, '"Oslo"}', last=True))
            yield Event("text", TextResult("tool_calls", Usage(10, 0, 5)), last=True)
            if "audio" in r.terminals:
                yield Event("audio", None, last=True, skipped=True)
            return
        text = ""
        for n, word in enumerate(s.words, 1):
            while n == len(s.words) and s.hold is not None and not s.hold.is_set():
                await self._sleep(0.01)
            text += word
            yield Event("text", TextDelta(word, s.tokens_a_word))
            await self._sleep(s.token_s)
        if s.fail is not None:
            raise s.fail
        if "audio" in r.terminals:
            await self._sleep(s.first_audio_s)
            total, made = int(s.audio_s * 24_000), 0
            while made < total:
                n = min(int(s.chunk_s * 24_000), total - made)
                at = np.arange(made, made + n) / 24_000
                made += n
                mark = Mark(made, len(text) * made // total)
                pcm = (0.4 * np.sin(2 * np.pi * 440 * at)).astype(np.float32)
                yield Event("audio", AudioDelta(pcm, (mark,)))
                await self._sleep(n / 24_000 * s.realtime_factor)
            yield Event("audio", AudioResult(total), last=True)
        yield Event("text", TextResult("stop", Usage(10, 0, len(s.words))), last=True)

    async def _sleep(self, seconds: float) -> None:
        """Like the graph: an abort is felt at once."""
        try:
            async with asyncio.timeout(seconds):
                await self._aborted.wait()
            raise Aborted("client")
        except TimeoutError:
            return

    def abort(self, reason: str = "client") -> None:
        self.timeline.setdefault("asked", time.monotonic())
        self.timeline.setdefault("broadcast", time.monotonic())
        self._aborted.set()

    def tell(
        self,
        *,
        due_in_ms: float,
        heard_ms: float | None = None,
        window_ms: float | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.told.append({"due_in_ms": due_in_ms, "heard_ms": heard_ms, "listener": listener})

    def released(self) -> Awaitable[Any]:
        self.timeline.setdefault("closed:stub", time.monotonic())
        self.timeline.setdefault("released", time.monotonic())
        return asyncio.sleep(0)


class StubClient:
    """The graph's place, filled by a script."""

    def __init__(self, script: Script | None = None, info: PipelineInfo = INFO) -> None:
        self.script = script or Script()
        self.works: list[StubWork] = []
        self.open: set[int] = set()
        self.forgotten: list[str] = []
        self._info = info

    @property
    def info(self) -> PipelineInfo:
        return self._info

    async def start(self, progress: Callable[[str], None] | None = None) -> None: ...

    async def stop(self) -> None: ...

    def generate(self, request: GenerateRequest) -> StubWork:
        if self.script.refuse is not None:
            raise self.script.refuse
        work = StubWork(request, self.script, lambda w: self.open.discard(id(w)))
        self.works.append(work)
        return work

    def forget(self, conversation: str) -> None:
        self.forgotten.append(conversation)

    def health(self) -> dict[str, Any]:
        return {"lanes": {}}

    def stats(self) -> dict[str, Any]:
        return {"submitted": len(self.works), "stages": {"stub": {"steps": 1}}}

    def answers(self) -> list[StubWork]:
        return [w for w in self.works if w.request.task == "chat" and w.request.kind == "generate"]


class StubEar:
    """An energy detector in the place of the network: a window that is loud is speech."""

    def __init__(self, on_score: Callable[[SpeechScored], None]) -> None:
        self._on_score = on_score
        self._held = np.zeros(0, np.float32)
        self._end = 0
        self.closed = False

    def push(self, samples: NDArray[np.float32]) -> None:
        self._held = np.concatenate((self._held, samples))
        while len(self._held) >= WINDOW:
            window, self._held = self._held[:WINDOW], self._held[WINDOW:]
            self._end += WINDOW
            loud = np.flatnonzero(np.abs(window) > 0.02)
            p = 0.95 if len(loud) > WINDOW // 4 else 0.02
            self._on_score(SpeechScored(self._end, p, self._end - WINDOW + int(loud[-1]) + 1 if len(loud) else -1))

    def score_turn(self, samples: NDArray[np.float32], done: Callable[[float | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, 0.9)

    def expect_echo(self, samples: int) -> None: ...

    def close(self) -> None:
        self.closed = True
