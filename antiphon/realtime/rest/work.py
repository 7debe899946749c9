"""One generation for one HTTP call: its progress told to the graph, its end logged, its abort certain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import PipelineError
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta
from antiphon.pipelines.requests import GenerateRequest
from antiphon.realtime.rest import timing
from antiphon.realtime.state import State

log = logging.getLogger("antiphon.rest")

TELL_EVERY_S = 0.2
READING_DUE_MS = 250.0
"""A reader of text is served within this time after what it got last."""
RECEIPT_S = 30.0


class Work:
    """Iterate it once, then ``close`` it, whatever happened: that aborts what has not ended.

    ``begin`` may be awaited before: it returns when the first output is there, or raises what prevented it.

    A listener of a REST stream may keep what it gets for later, so nothing is held back for it (``heard_ms`` None); but
    it is served like one that plays at once, so that a long download never comes before someone who is talking.
    Raises ``Refused`` and ``Busy`` when made, and what ended the request early when iterated.
    """

    def __init__(self, state: State, request: GenerateRequest) -> None:
        self.request = request
        self._state = state
        self._generation = state.client.generate(request)
        state.metrics.generations.labels(request.task).inc()
        self._listens = request.listener != "none"
        self._last_told = -TELL_EVERY_S
        self._first_audio: float | None = None
        self._made_s = 0.0
        self._events = self._run()
        self._first: Event | None = None
        self._begun = False

    @property
    def timeline(self) -> dict[str, float]:
        return self._generation.timeline

    async def begin(self) -> Work:
        """Wait for the first output."""
        self._first = await anext(self._events, None)
        self._begun = True
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        event = self._first if self._begun else await anext(self._events, None)
        while event is not None:
            yield event
            event = await anext(self._events, None)

    async def close(self) -> None:
        """Idempotent."""
        self._generation.abort("client")  # nothing happens to what has ended
        await self._events.aclose()

    async def _run(self) -> AsyncGenerator[Event, None]:
        ending: Literal["finished", "failed", "aborted"] = "aborted"
        try:
            async for event in self._generation:
                self._tell(event)
                yield event
            ending = "finished"
        except PipelineError:
            ending = "failed"
            raise
        finally:
            if ending == "aborted":
                self._generation.abort("client")
                self._state.metrics.aborts.labels(self.request.task).inc()
            self._state.spawn(self._account(ending))

    async def settled(self, seconds: float = 0.1) -> None:
        """Wait a little for the last receipts, so that the timeline is whole."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._generation.released()

    def _tell(self, event: Event) -> None:
        if not self._listens or event.last:
            return
        now = time.monotonic()
        if isinstance(event.data, AudioDelta):
            self._first_audio = now if self._first_audio is None else self._first_audio
            self._made_s += len(event.data.pcm) / AUDIO_RATE
        if now - self._last_told < TELL_EVERY_S:
            return
        self._last_told = now
        due_in_ms = READING_DUE_MS
        if self._first_audio is not None:
            due_in_ms = max(0.0, self._made_s - (now - self._first_audio)) * 1000
        self._generation.tell(due_in_ms=due_in_ms, heard_ms=None)

    async def _account(self, ending: str) -> None:
        """The log line and the metrics, once every lane has given its receipt. Never a word of what was said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECEIPT_S):
                await self._generation.released()
        if ending == "aborted":
            self._state.metrics.released(self.timeline)
        else:
            self._state.metrics.stages(self.timeline)
        spent = timing.milliseconds(self.timeline)
        figures = " ".join(f"{name}={ms:g}" for name, ms in spent.items())
        extra = {"request_id": self.request.id, "task": self.request.task, "ending": ending, "ms": spent}
        log.info("%s %s %s %s", self.request.task, self.request.id, ending, figures, extra=extra)
