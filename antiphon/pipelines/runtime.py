"""The graph in one process: each lane on a thread, the coordinator on the caller's asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.errors import PipelineError
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.lane_thread import STEP_LIMIT_S
from antiphon.pipelines.local_lanes import LocalLanes, health
from antiphon.pipelines.messages import ToCoordinator, ToLane
from antiphon.pipelines.validation import refuse_unexecuted


class LoopDriver:
    """Calls ``turn`` on the loop: soon after a wake from any thread, and when the turn asked to be called again."""

    def __init__(self, turn: Callable[[float], float | None], clock: Callable[[], float]) -> None:
        self._turn = turn
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._thread = 0
        self._timer: asyncio.TimerHandle | None = None

    def attach(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

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
        if threading.get_ident() == self._thread:
            loop.call_soon(self._run)
        else:
            loop.call_soon_threadsafe(self._run)

    @contextlib.contextmanager
    def turning(self) -> Iterator[None]:
        """On the loop: what wakes inside is answered by one turn at the end, without going through the loop."""
        already, self._scheduled = self._scheduled, True
        try:
            yield
        finally:
            if not already:  # else a turn is on its way
                self._run()

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
    """A Backend for ``Client``. Raises ConfigError for declared fields that it does not execute.

    ``step_limit_s``: a step that takes longer fails the requests inside, and its lane is refused by name until it returns.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        max_requests: int = 256,
        step_limit_s: float = STEP_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        refuse_unexecuted(config)
        self.config = config
        self._driver = LoopDriver(lambda now: self.coordinator.turn(now), clock)
        self.coordinator = Coordinator(config, self, clock, max_requests=max_requests, wake=self._driver.wake)
        self._lane_of = {name: stage.lane for name, stage in config.stages.items()}
        self._lanes = LocalLanes(config, config.lanes, self, self.coordinator, step_limit_s=step_limit_s, clock=clock)

    # -- Backend
    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Build and warm up every lane in parallel. A failed start is rolled back whole and raised by name."""
        self._driver.attach()
        try:
            await self._lanes.start(progress)
        except PipelineError:
            await self.stop()
            raise

    async def stop(self) -> None:
        await self._lanes.stop()
        self._driver.detach()

    def health(self) -> dict[str, Any]:
        """``lanes``: "ready" or why not; ``unavailable``: the stages that cannot serve."""
        away = self.coordinator.unavailable
        return {"lanes": health(self.config, away), "unavailable": dict(away)}

    # -- Switch and Exchange
    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        for lane in lanes:
            self._lanes.put(lane, message)

    def to_stage(self, stage: str, message: ToLane) -> None:
        self._lanes.put(self._lane_of[stage], message)

    def to_coordinator(self, message: ToCoordinator) -> None:
        self.coordinator.post(message)

    def awaits(self, lanes: Iterable[str]) -> set[str]:
        return set()  # a local mailbox is in order: Open is there before any data
