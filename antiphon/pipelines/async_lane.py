"""A lane of async twins: one event loop on a thread of its own, one coroutine per open task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from antiphon.pipelines.lane import Exchange, Lane, Station
from antiphon.pipelines.messages import ToLane
from antiphon.pipelines.seat import Seat
from antiphon.pipelines.stage import AsyncStage, Chunk, Fence, Progress, Reason

log = logging.getLogger("antiphon.lane")


class Running:
    """The task of an async stage, as its lane holds it."""

    __slots__ = ("changed", "coroutine")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.coroutine: asyncio.Task[None] | None = None


class Returned:
    """A fence: the coroutine has ended, so its engine has confirmed."""

    def __init__(self, coroutine: asyncio.Task[None]) -> None:
        self._coroutine = coroutine

    def done(self) -> bool:
        return self._coroutine.done()


class AsyncLane(Lane[AsyncStage]):
    """``mail`` may be put to from any thread; all else runs on the lane's loop."""

    def __init__(self, name: str, exchange: Exchange, clock: Callable[[], float]) -> None:
        super().__init__(name, exchange, clock)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._mail: deque[ToLane] = deque()
        self._called = False
        """A turn is on its way and has not begun to read."""
        self._stopping = asyncio.Event()
        self._chores: set[asyncio.Task[None]] = set()

    def put(self, message: ToLane) -> None:
        """From any thread."""
        self._mail.append(message)
        if self.loop is not None and not self.loop.is_closed() and not self._called:
            self._called = True
            self.loop.call_soon_threadsafe(self.turn)

    def turn(self) -> None:
        self._called = False  # before the mail is read: what comes later calls again
        now = self.clock()
        while self._mail:
            self.handle(self._mail.popleft(), now)
        self.drain_local(now)
        if self.fences:
            self.check_fences()
        for station in self.stations.values():
            if station.queued:
                self.open_waiting(station, now)
        self.drain_local(now)

    def _soon(self) -> None:
        """A turn after this callback: inside a task's coroutine, a turn could close the very task that takes it."""
        asyncio.get_running_loop().call_soon(self.turn)

    async def run(self) -> None:
        """Serve until stopped; then every coroutine is cancelled and awaited."""
        self.loop = asyncio.get_running_loop()
        self.turn()
        await self._stopping.wait()
        tasks = [s.task.coroutine for st in self.stations.values() for s in st.open.values()]
        pending = [task for task in tasks if task is not None]
        for coroutine in pending:
            coroutine.cancel()
        await asyncio.gather(*pending, *self._chores, return_exceptions=True)
        for station in self.stations.values():
            await station.stage.shut_down()

    def stop(self) -> None:
        """From any thread."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stopping.set)

    # -- the hooks of Lane
    def open_waiting(self, station: Station[AsyncStage], now: float) -> None:
        while station.queued and len(station.open) < station.config.max_open:
            seat = min(station.queued, key=lambda s: s.due)
            station.queued.remove(seat)
            seat.state = "waiting"
            try:
                inputs = self.inputs(seat)
            except Exception as error:  # noqa: BLE001 - the author's merge_fn: this request fails, no other
                self.fail(seat, error)
                continue
            running = Running()
            seat.task, seat.state = running, "open"
            seat.started = True
            seat.queued_s = now - seat.queued_at
            station.open[id(running)] = seat
            running.coroutine = asyncio.get_running_loop().create_task(self._drive(station, seat, running, inputs))
            running.coroutine.add_done_callback(partial(self._over, running))

    def _over(self, running: Running, _: asyncio.Task[None]) -> None:
        # A cancelled task keeps its error, that its frames, and these what runs here: a ring, which the collector would leave
        # for long, with the megabytes that were fetched for it.
        running.coroutine = None
        self.turn()

    def close_task(self, station: Station[AsyncStage], seat: Seat, reason: Reason) -> Fence | None:
        coroutine: asyncio.Task[None] | None = seat.task.coroutine
        if coroutine is None or coroutine.done():
            return None
        fence = Returned(coroutine)
        if coroutine is not asyncio.current_task():
            coroutine.cancel()
        return fence

    def told(self, station: Station[AsyncStage], seat: Seat, progress: Progress) -> None:
        seat.task.changed.set()

    def woken(self, seat: Seat) -> None:
        seat.task.changed.set()

    def forget_conversation(self, conversation: str) -> None:
        for station in self.stations.values():
            chore = asyncio.get_running_loop().create_task(station.stage.forget(conversation))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    # -- one task
    async def _drive(self, station: Station[AsyncStage], seat: Seat, running: Running, inputs: Any) -> None:
        outputs = station.stage.run(seat.rider.request, inputs, self._chunks(seat, running))
        try:
            async for output in outputs:
                while seat.state == "open" and seat.blocked:
                    running.changed.clear()
                    await running.changed.wait()
                if seat.state != "open":
                    return
                seat.steps += 1
                if output.result:
                    self.finish(seat, output.data)
                    self._soon()
                    return
                self.send_chunk(seat, output.data, output.span_ms)
                self._soon()
            if seat.state == "open":
                self.finish(seat, None)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the author's code: this request fails, no other
            if seat.state == "open":
                self.fail(seat, error)
        finally:
            close = getattr(outputs, "aclose", None)
            if close is not None:
                await close()

    async def _chunks(self, seat: Seat, running: Running) -> AsyncIterator[Chunk]:
        open_sources = set(seat.input_sources())
        while open_sources:
            while not seat.chunks:
                running.changed.clear()
                await running.changed.wait()
            message = seat.chunks.popleft()
            self.return_credit(seat, message)
            self._soon()
            if message.last:
                open_sources.discard(message.source)
            else:
                yield Chunk(message.source, message.index, message.data, False, message.span_ms)
