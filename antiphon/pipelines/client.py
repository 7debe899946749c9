"""The only door that the session and realtime rooms use: a GenerateRequest in, events out.

A client lives on one asyncio loop. It serves a whole pipeline, wherever its lanes run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.errors import Aborted
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.messages import Event as TerminalEvent
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import CLIENT, Listener, Request

log = logging.getLogger("antiphon.client")

RECEIPTS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Event:
    """One output. ``last``: the terminal has ended and ``data`` is its Result (None and ``skipped`` if it was never made)."""

    terminal: str
    data: Any
    last: bool = False
    skipped: bool = False


class Generation:
    """One request under way. Iterate it once; abort it if you stop early."""

    def __init__(self, handle: Handle, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._changed = asyncio.Event()
        self._input_credit = asyncio.Event()
        self._released = loop.create_future()
        handle.on_event = self._changed.set
        handle.on_input_credit = self._input_credit.set
        handle.on_released = self._on_released

    @property
    def id(self) -> str:
        return self._handle.request.id

    @property
    def timeline(self) -> dict[str, float]:
        """Seconds on the monotonic clock: submitted, started, first:/done:<terminal>, ended, asked, broadcast,
        closed:/released:<lane>, released; and in seconds spent: queue:/step:<stage>."""
        return self._handle.timeline

    @property
    def ended(self) -> bool:
        return self._handle.end is not None

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Every chunk and every end of a terminal, in order. Raises what ended the request early: Refused, StageFailed,
        Aborted. Leaving the loop early does not abort; ``abort`` does."""
        handle = self._handle
        while True:
            message = handle.read()
            if message is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            if isinstance(message, End):
                if message.error is not None:
                    raise message.error
                return
            assert isinstance(message, TerminalEvent)
            yield Event(message.terminal, message.data, message.last, message.skipped)

    def abort(self, reason: str = CLIENT) -> None:
        """Idempotent; returns at once."""
        self._handle.abort(reason)

    def tell(
        self,
        *,
        due_in_ms: float,
        heard_ms: float | None = None,
        window_ms: float | None = None,
        listener: Listener | None = None,
    ) -> None:
        """What the listener has heard and when it runs out of audio. Call on change, at most five times a second."""
        self._handle.tell(due_in_ms=due_in_ms, heard_ms=heard_ms, window_ms=window_ms, listener=listener)

    async def feed(self, data: Any) -> None:
        """Feed the entry stage; waits for credit. Raises Aborted when the request has ended."""
        while self._handle.input_full:
            if self.ended:
                raise Aborted("ended")
            self._input_credit.clear()
            await self._input_credit.wait()
        self._handle.feed(data)

    def finish(self) -> None:
        """No more input."""
        self._handle.feed(None, last=True)

    async def released(self) -> dict[str, float]:
        """Wait until every lane has given its receipt; the timeline."""
        await asyncio.shield(self._released)
        return self.timeline

    def _on_released(self) -> None:
        self._input_credit.set()
        if not self._released.done():
            self._released.set_result(None)


class Backend(Protocol):
    """What runs the lanes: started before the first request, stopped after the last."""

    coordinator: Coordinator

    async def start(self, progress: Callable[[str], None] | None = None) -> None: ...

    async def stop(self) -> None: ...

    def health(self) -> dict[str, Any]: ...


class Client:
    """``async with Client(backend)`` starts the lanes and stops them, with nothing left behind."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ready = False

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Returns when every stage has run once: ready means warm. Raises ConfigError or WeightError by name."""
        await self._backend.start(progress)
        self._ready = True

    async def stop(self) -> None:
        """Abort what runs, wait for receipts, end the lanes."""
        self._ready = False
        coordinator = self._backend.coordinator
        for handle in list(coordinator.live.values()):
            coordinator.abort(handle, "shutdown")
        left = len(coordinator.live)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECEIPTS_TIMEOUT_S):
                await coordinator.drained()
        if coordinator.live:
            log.error("%d of %d aborted requests gave no receipt", len(coordinator.live), left)
        await self._backend.stop()

    async def __aenter__(self) -> Client:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def info(self) -> PipelineInfo:
        return self._backend.coordinator.config.info

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return sum(1 for h in self._backend.coordinator.live.values() if h.end is None)

    def generate(self, request: GenerateRequest, *, streams_input: bool = False) -> Generation:
        """Raises Refused or Busy at once; everything later comes out of the iteration."""
        handle = self._backend.coordinator.submit(
            Request(
                id=request.id,
                terminals=request.terminals,
                body=request,
                kind=request.kind,
                conversation=request.conversation,
                listener=request.listener,
                streams_input=streams_input,
            )
        )
        return Generation(handle, asyncio.get_running_loop())

    def forget(self, conversation: str) -> None:
        """The conversation is over: its caches may go."""
        self._backend.coordinator.forget(conversation)

    def health(self) -> dict[str, Any]:
        return self._backend.health()

    def stats(self) -> dict[str, Any]:
        """Counts since the start, and per stage: requests, queued_s, steps, step_s."""
        return asdict(self._backend.coordinator.stats)
