"""The graph in one process: each lane on a thread, the coordinator on the caller's asyncio loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.errors import PipelineError, StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.lane_thread import LaneThread
from antiphon.pipelines.messages import ToCoordinator, ToLane
from antiphon.pipelines.validation import refuse_unexecuted

log = logging.getLogger("antiphon.runtime")

STOP_TIMEOUT_S = 10.0


class LoopDriver:
    """Calls ``turn`` on the loop: soon after a wake from any thread, and when the turn asked to be called again."""

    def __init__(self, turn: Callable[[float], float | None], clock: Callable[[], float]) -> None:
        self._turn = turn
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def attach(self) -> None:
        self._loop = asyncio.get_running_loop()

    def detach(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None

    def wake(self) -> None:
        """From any thread."""
        loop = self._loop
        if loop is None or self._scheduled or loop.is_closed():
            return
        self._scheduled = True
        loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._scheduled = False  # before the mail is read: what comes later wakes again
        if self._loop is None:
            return
        again = self._turn(self._clock())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if again is not None:
            self._timer = self._loop.call_later(max(0.0, again - self._clock()), self._run)


class LocalRuntime:
    """A Backend for ``Client``. Raises ConfigError for declared fields that it does not execute."""

    def __init__(self, config: PipelineConfig, *, max_requests: int = 256, clock: Callable[[], float] = time.monotonic) -> None:
        refuse_unexecuted(config)
        self.config = config
        self._driver = LoopDriver(lambda now: self.coordinator.turn(now), clock)
        self.coordinator = Coordinator(config, self, clock, max_requests=max_requests, wake=self._driver.wake)
        self._lane_of = {name: stage.lane for name, stage in config.stages.items()}
        self._clock = clock
        self._threads: dict[str, LaneThread] = {}
        self._ready: dict[str, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dead: dict[str, str] = {}

    # -- Backend
    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Build and warm up every lane in parallel. A failed start is rolled back whole and raised by name."""
        self._loop = asyncio.get_running_loop()
        self._driver.attach()
        for name, stages in self.config.lanes.items():
            self._ready[name] = self._loop.create_future()
            self._threads[name] = LaneThread(
                name, self.config, stages, self, ready=self._lane_ready, died=self._lane_died, clock=self._clock
            )
        for thread in self._threads.values():
            thread.start()
        try:
            for name, future in self._ready.items():
                await future
                if progress is not None:
                    progress(name)
        except PipelineError:
            await self.stop()
            raise

    async def stop(self) -> None:
        for thread in self._threads.values():
            thread.stop()
        for future in self._ready.values():
            if future.done() and not future.cancelled():
                future.exception()  # seen: the first one was raised by start
        for name, thread in self._threads.items():
            ended = await asyncio.to_thread(thread.join, STOP_TIMEOUT_S)
            if not ended:
                log.error("lane %s did not end within %.0f s", name, STOP_TIMEOUT_S)
        self._threads.clear()
        self._driver.detach()

    def health(self) -> dict[str, Any]:
        """Lane -> "ready" or what ended it."""
        return {"lanes": {name: self._dead.get(name, "ready") for name in self.config.lanes}}

    # -- Switch and Exchange
    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        for lane in lanes:
            self._to_lane(lane, message)

    def _to_lane(self, lane: str, message: ToLane) -> None:
        if lane not in self._dead:
            self._threads[lane].put(message)

    def to_stage(self, stage: str, message: ToLane) -> None:
        self._to_lane(self._lane_of[stage], message)

    def to_coordinator(self, message: ToCoordinator) -> None:
        self.coordinator.post(message)

    def awaits(self, lanes: Iterable[str]) -> set[str]:
        return set()  # a local mailbox is in order: Open is there before any data

    # -- from lane threads
    def _lane_ready(self, name: str) -> None:
        self._call(self._on_ready, name)

    def _lane_died(self, name: str, error: Exception) -> None:
        self._call(self._on_died, name, error)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def _on_ready(self, name: str) -> None:
        if not self._ready[name].done():
            self._ready[name].set_result(None)

    def _on_died(self, name: str, error: Exception) -> None:
        if not self._ready[name].done():
            if not isinstance(error, PipelineError):
                error = StageFailed(name, f"could not start: {type(error).__name__}: {error}")
            self._ready[name].set_exception(error)
            return
        self._dead[name] = type(error).__name__
        lost = StageFailed(name, "a lane of the model ended unexpectedly; please retry", code="server_error", retryable=True)
        for stage in self.config.lanes[name]:
            self.coordinator.unavailable[stage.name] = "its lane has ended"
        self.coordinator.lanes_lost({name}, lost)
