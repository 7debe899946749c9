"""The lanes of this process, each on a thread, started, watched and stopped together by an asyncio loop.

A lane that has ended, or that does not come back from a step, takes nothing new: its stages are refused by name. A thread
cannot be killed, so a step past its limit fails the requests inside it, and the lane serves again when the step returns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.errors import PipelineError, StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.lane import Exchange
from antiphon.pipelines.lane_thread import STEP_LIMIT_S, WARN_SHARE, WATCH_S, LaneThread
from antiphon.pipelines.messages import ToLane

log = logging.getLogger("antiphon.runtime")

STOP_TIMEOUT_S = 10.0


class LocalLanes:
    """``coordinator`` is told, on the loop, of lanes that cannot serve."""

    def __init__(
        self,
        config: PipelineConfig,
        names: Iterable[str],
        exchange: Exchange,
        coordinator: Coordinator,
        *,
        step_limit_s: float = STEP_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.names = tuple(names)
        self.dead: dict[str, str] = {}
        """Lane -> what ended it."""
        self._exchange = exchange
        self._coordinator = coordinator
        self._limit = step_limit_s
        self._stuck: set[str] = set()
        self._slow: set[str] = set()
        self._watchdog: asyncio.Task[None] | None = None
        self._clock = clock
        self._threads: dict[str, LaneThread] = {}
        self._ready: dict[str, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Build and warm up every lane in parallel. Raises PipelineError by name; the caller then stops the rest."""
        self._loop = asyncio.get_running_loop()
        lanes = self.config.lanes
        for name in self.names:
            self._ready[name] = self._loop.create_future()
            self._threads[name] = LaneThread(
                name, self.config, lanes[name], self._exchange, ready=self._lane_ready, died=self._lane_died, clock=self._clock
            )
        for thread in self._threads.values():
            thread.start()
        for name, future in self._ready.items():
            await future
            if progress is not None:
                progress(name)
        if self._threads:
            self._watchdog = self._loop.create_task(self._watch(), name="lane watchdog")

    async def stop(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.gather(self._watchdog, return_exceptions=True)
            self._watchdog = None
        for thread in self._threads.values():
            thread.stop()
        if self._threads:
            await asyncio.to_thread(self._join)
        self._threads.clear()

    def _join(self) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for name, thread in self._threads.items():
            if not thread.join(max(0.0, deadline - time.monotonic())):
                log.error("lane %s did not end within %.0f s", name, STOP_TIMEOUT_S)

    def put(self, lane: str, message: ToLane) -> None:
        """From any thread. Mail for a lane that has ended is dropped."""
        if lane not in self.dead:
            self._threads[lane].put(message)

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
            self._ready[name].exception()  # seen: start raises the first one, and nobody asks for those of other lanes
            return
        self.dead[name] = type(error).__name__
        self._refuse(name, "its lane has ended")
        ended = StageFailed(name, "a lane of the model ended unexpectedly; please retry", code="server_error", retryable=True)
        self._coordinator.lanes_lost({name}, ended)

    # -- the watchdog, on the loop
    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(WATCH_S, self._limit / 4))
            now = self._clock()
            for name, thread in self._threads.items():
                if name not in self.dead:
                    self._look(name, thread.stepping, now)

    def _look(self, name: str, stepping: tuple[str, float] | None, now: float) -> None:
        stage, since = stepping or ("", now)
        seconds = now - since
        if seconds > self._limit and name not in self._stuck:
            self._stuck.add(name)
            log.error(
                "stage %r has been in one step for %.1f s (its limit is %g s): lane %s", stage, seconds, self._limit, name
            )
            self._refuse(name, f"stage {stage!r} has been in one step for more than {self._limit:g} s")
            stuck = StageFailed(stage, "the model does not answer; please retry later", code="server_error", retryable=True)
            self._coordinator.lanes_lost({name}, stuck, stuck=True)
        elif seconds <= self._limit and name in self._stuck:
            self._stuck.discard(name)
            log.warning("lane %s serves again", name)
            for config in self.config.lanes[name]:
                self._coordinator.unavailable.pop(config.name, None)
        if seconds <= self._limit * WARN_SHARE:
            self._slow.discard(name)
        elif name not in self._slow:
            self._slow.add(name)
            log.warning("stage %r is slow: it has been in one step for %.1f s", stage, seconds)

    def _refuse(self, name: str, why: str) -> None:
        for config in self.config.lanes[name]:
            self._coordinator.unavailable[config.name] = why


def health(config: PipelineConfig, unavailable: Mapping[str, str]) -> dict[str, str]:
    """Lane -> "ready", or which of its stages cannot serve and why."""
    return {
        name: next((f"stage {s.name}: {unavailable[s.name]}" for s in stages if s.name in unavailable), "ready")
        for name, stages in config.lanes.items()
    }
