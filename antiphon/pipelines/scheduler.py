"""A lane of stepped stages: one thread, earliest deadline first over all of its stages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from antiphon.pipelines.lane import Exchange, Lane, Station
from antiphon.pipelines.messages import ToLane
from antiphon.pipelines.seat import NO_LISTENER_DUE_S, Seat
from antiphon.pipelines.stage import Chunk, Fence, Progress, Reason, Stage, Wait

log = logging.getLogger("antiphon.lane")

FENCE_POLL_S = 0.0005


class SteppedLane(Lane[Stage[Any]]):
    """``turn(now)`` reads the mail, opens what may open and steps the most urgent batch once; tests call it by hand."""

    def __init__(self, name: str, exchange: Exchange, clock: Callable[[], float]) -> None:
        super().__init__(name, exchange, clock)
        self.mail: SimpleQueue[ToLane | None] = SimpleQueue()  # None only wakes
        self.at = ""
        """The stage whose code runs, or ran last; "" before any has."""
        self.since: float | None = None
        """When what this thread does now began: a step, or the turn around it; None while it waits. For a watchdog."""
        self._stopped = False

    def turn(self, now: float) -> float | None:
        """Returns when to be called again: ``now`` at once, later at a timer, None on mail."""
        self._read_mail(now)
        self.drain_local(now)
        if self.fences:
            self.check_fences()
        for station in self.stations.values():
            if station.queued:
                self.open_waiting(station, now)
        best, wake = self._most_urgent(now)
        if best is not None:
            self._step(*best, now)
            return now
        if self.local:
            return now
        if self.fences:
            return now + FENCE_POLL_S if wake is None else min(wake, now + FENCE_POLL_S)
        return wake

    def _read_mail(self, now: float) -> None:
        while True:
            try:
                message = self.mail.get_nowait()
            except Empty:
                return
            if message is not None:
                self.handle(message, now)

    def _most_urgent(self, now: float) -> tuple[tuple[Station[Stage[Any]], list[tuple[float, int, Seat]]] | None, float | None]:
        """The station with the earliest due among its ready tasks (on a tie the one nearest the listener)."""
        best: tuple[Station[Stage[Any]], list[tuple[float, int, Seat]]] | None = None
        best_rank = (0.0, 0)
        wake: float | None = None
        for station in self.stations.values():
            ready: list[tuple[float, int, Seat]] = []
            seats = list(station.open.values())
            verdicts = [self._feed_and_poll(station, seat, now) for seat in seats]
            for seat, verdict in zip(seats, verdicts, strict=True):
                if isinstance(verdict, Wait) and verdict.until is not None:
                    # It may wait for neighbours, and one of them may have been fed only behind it.
                    verdict = self._feed_and_poll(station, seat, now)
                if verdict is None:
                    continue
                if isinstance(verdict, Wait):
                    if verdict.until is not None:
                        wake = verdict.until if wake is None else min(wake, verdict.until)
                    continue
                ready.append((seat.due, verdict, seat))
            if ready:
                ready.sort(key=lambda entry: entry[0])
                rank = (ready[0][0], -station.depth)
                if best is None or rank < best_rank:
                    best, best_rank = (station, ready), rank
        return best, wake

    def _feed_and_poll(self, station: Station[Stage[Any]], seat: Seat, now: float) -> int | Wait | None:
        """Feed while it is hungry; then its cost if it can be stepped, its Wait, or None (held, or failed)."""
        stage = station.stage
        self.at = station.config.name
        while True:
            try:
                verdict = stage.poll(seat.task, now)
                waits = isinstance(verdict, Wait)
                if not waits and seat.blocked:  # before feeding: a held task takes nothing more in
                    return None
                if not seat.chunks or not verdict.hungry:
                    break
                message = seat.chunks.popleft()
                self.return_credit(seat, message)
                stage.feed(seat.task, Chunk(message.source, message.index, message.data, message.last, message.span_ms))
            except Exception as error:  # noqa: BLE001 - the author's code: this task fails, no other
                self.fail(seat, error)
                return None
        return verdict if isinstance(verdict, Wait) else verdict.cost

    def _step(self, station: Station[Stage[Any]], ready: list[tuple[float, int, Seat]], now: float) -> None:
        batch: list[Seat] = []
        spent = 0
        for _, cost, seat in ready:
            if len(batch) == station.config.max_batch:
                break
            if batch and spent + cost > station.config.step_budget:
                continue  # the next one may be small: a token of an answer beside another's prompt
            batch.append(seat)
            spent += cost
            if not seat.started:
                seat.started = True
                seat.queued_s = now - seat.queued_at
        outbox = Outbox(self, {id(seat.task): seat for seat in batch})
        self.at = station.config.name
        began = self.since = self.clock()
        try:
            station.stage.step([seat.task for seat in batch], outbox)
        except Exception as error:  # noqa: BLE001 - the author's code: the batch fails, the lane goes on
            for seat in batch:
                outbox.ends.setdefault(id(seat.task), (None, error))
        ended = self.since = self.clock()
        for seat in batch:
            seat.steps += 1
            seat.step_s += ended - began
            if seat.rider.listener == "none":
                seat.own_due = ended + NO_LISTENER_DUE_S
            end = outbox.ends.get(id(seat.task))
            if end is not None:
                data, error_ = end
                if error_ is not None:
                    self.fail(seat, error_)
                else:
                    self.finish(seat, data)

    # -- the hooks of Lane
    def fail(self, seat: Seat, error: BaseException) -> None:
        if isinstance(error, Exception) and self.stations[seat.config.name].stage.fatal(error):
            raise error  # the lane ends by it
        super().fail(seat, error)

    def open_waiting(self, station: Station[Stage[Any]], now: float) -> None:
        while station.queued and len(station.open) < station.config.max_open:
            seat = min(station.queued, key=lambda s: s.due)
            station.queued.remove(seat)
            seat.state = "waiting"  # neither queued nor open while the author's code runs
            self.at = station.config.name
            try:
                task = station.stage.open(seat.rider.request, self.inputs(seat))
            except Exception as error:  # noqa: BLE001 - the author's code: this request fails, no other
                self.fail(seat, error)
                continue
            seat.task, seat.state = task, "open"
            station.open[id(task)] = seat
            if seat.rider.progress is not None:
                self.told(station, seat, seat.rider.progress)

    def close_task(self, station: Station[Stage[Any]], seat: Seat, reason: Reason) -> Fence | None:
        self.at = station.config.name
        return station.stage.close(seat.task, reason)

    def told(self, station: Station[Stage[Any]], seat: Seat, progress: Progress) -> None:
        self.at = station.config.name
        try:
            station.stage.tell(seat.task, progress)
        except Exception as error:  # noqa: BLE001 - the author's code: this task fails, no other
            self.fail(seat, error)

    def forget_conversation(self, conversation: str) -> None:
        for station in self.stations.values():
            self.at = station.config.name
            try:
                station.stage.forget(conversation)
            except Exception:
                log.exception("forget of stage %s failed", station.config.name)

    # -- the thread
    def run(self) -> None:
        """Step until stopped. The stages must have been built and warmed up."""
        while not self._stopped:
            now = self.since = self.clock()
            wake = self.turn(now)
            if self._stopped or (wake is not None and wake <= now):
                continue  # the turn may have read the message that was to wake us
            self.since = None
            try:
                message = self.mail.get(timeout=None if wake is None else max(0.0, wake - self.clock()))
            except Empty:
                continue
            if message is not None:
                now = self.since = self.clock()
                self.handle(message, now)
                message = None  # a lane that waits holds nothing: what came with it may lie in a slot of shared memory

    def stop(self) -> None:
        """From any thread: the run ends after the step under way."""
        self._stopped = True
        self.mail.put(None)


class Outbox:
    """The Emit of one step. Other lanes get a chunk at once; this lane's own stages when the step has returned."""

    __slots__ = ("_lane", "_seats", "ends")

    def __init__(self, lane: SteppedLane, seats: dict[int, Seat]) -> None:
        self._lane = lane
        self._seats = seats
        self.ends: dict[int, tuple[Any, Exception | None]] = {}

    def _seat(self, task: Any) -> Seat:
        seat = self._seats.get(id(task))
        if seat is None or id(task) in self.ends:
            raise RuntimeError("a step emitted for a task that is not in it or has ended")
        return seat

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self._lane.send_chunk(self._seat(task), data, span_ms)

    def result(self, task: Any, data: Any = None) -> None:
        self._seat(task)
        self.ends[id(task)] = (data, None)

    def failure(self, task: Any, error: Exception) -> None:
        self._seat(task)
        self.ends[id(task)] = (None, error)
