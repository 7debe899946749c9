"""The lanes of this process, each on a thread, started and stopped together by an asyncio loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from antiphon.pipelines.errors import PipelineError, StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.lane import Exchange
from antiphon.pipelines.lane_thread import LaneThread
from antiphon.pipelines.messages import ToLane

log = logging.getLogger("antiphon.runtime")

STOP_TIMEOUT_S = 10.0


class LocalLanes:
    """``lost`` is called on the loop when a lane that was ready has ended by itself."""

    def __init__(
        self,
        config: PipelineConfig,
        names: Iterable[str],
        exchange: Exchange,
        *,
        lost: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.names = tuple(names)
        self.dead: dict[str, str] = {}
        """Lane -> what ended it."""
        self._exchange = exchange
        self._lost = lost
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

    async def stop(self) -> None:
        for thread in self._threads.values():
            thread.stop()
        for future in self._ready.values():
            if future.done() and not future.cancelled():
                future.exception()  # seen: the first one was raised by start
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
            return
        self.dead[name] = type(error).__name__
        self._lost(name)


def lane_ended(name: str) -> StageFailed:
    """What its requests are told."""
    return StageFailed(name, "a lane of the model ended unexpectedly; please retry", code="server_error", retryable=True)
