"""What every lane does, stepped or async: mail, seats, the ends of tasks, receipts.

A lane is an actor: its mail is read and its stages are called on one thread. It names no medium and no model.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.graph import StageConfig
from antiphon.pipelines.messages import (
    Close,
    Closed,
    Credit,
    Cut,
    Event,
    Failed,
    Feed,
    Forget,
    Give,
    Key,
    Open,
    Receipt,
    Spent,
    Tell,
    ToCoordinator,
    ToLane,
)  # fmt: skip
from antiphon.pipelines.seat import Rider, Seat
from antiphon.pipelines.stage import CLIENT, Fence, Progress, Reason

log = logging.getLogger("antiphon.lane")

StageT = TypeVar("StageT")


class Exchange(Protocol):
    """How messages leave a lane. Local ones land in a mailbox; an exchange may know lanes of other processes."""

    def to_stage(self, stage: str, message: ToLane) -> None: ...

    def to_coordinator(self, message: ToCoordinator) -> None: ...


class Station(Generic[StageT]):
    """A stage on its lane: who waits for a slot, who holds one."""

    __slots__ = ("config", "depth", "entry", "open", "queued", "stage")

    def __init__(self, config: StageConfig, stage: StageT, depth: int, entry: bool) -> None:
        self.config = config
        self.stage = stage
        self.depth = depth
        self.entry = entry
        self.queued: list[Seat] = []
        self.open: dict[int, Seat] = {}
        """By ``id(task)``: a task may be unhashable."""


class Lane(Generic[StageT]):
    """Subclasses say how a seat opens, runs and closes. ``clock`` is monotonic seconds."""

    def __init__(self, name: str, exchange: Exchange, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.exchange = exchange
        self.clock = clock
        self.stations: dict[str, Station[StageT]] = {}
        self.riders: dict[Key, Rider] = {}
        self.local: deque[ToLane] = deque()
        """Messages between stages of this lane, read when the step has returned: no stage is re-entered."""
        self.fences: list[tuple[Fence, Key]] = []
        self.forgetting: list[str] = []

    # -- for subclasses
    def open_waiting(self, station: Station[StageT], now: float) -> None:
        """Open what may open, up to ``max_open``."""
        raise NotImplementedError

    def close_task(self, station: Station[StageT], seat: Seat, reason: Reason) -> Fence | None:
        raise NotImplementedError

    def told(self, station: Station[StageT], seat: Seat, progress: Progress) -> None: ...

    def woken(self, seat: Seat) -> None:
        """A chunk, a credit or progress came for an open seat."""

    def forget_conversation(self, conversation: str) -> None:
        raise NotImplementedError

    # -- mail
    def drain_local(self, now: float) -> None:
        while self.local:
            self.handle(self.local.popleft(), now)

    def handle(self, message: ToLane, now: float) -> None:
        match message:
            case Open(key=key):
                self.riders[key] = Rider(message, now)
            case Forget(conversation=conversation):
                self.forgetting.append(conversation)
                self._forget_idle()
            case Close(key=key, reason=reason):
                if key in self.riders:
                    self._close_rider(self.riders[key], reason)
            case _:
                rider = self.riders.get(message.key)
                if rider is not None:
                    self._for_rider(rider, message, now)

    def _for_rider(self, rider: Rider, message: Give | Feed | Credit | Tell | Cut, now: float) -> None:
        match message:
            case Cut(stages=stages, why=why, skipped=skipped):
                for gone in skipped:
                    self._skip(rider, gone, now)
                lost = rider.tied_to(stages, self.stations)
                if lost:
                    self.exchange.to_coordinator(Failed(rider.key, lost, why, "server_error", retryable=True))
            case Tell():
                self._tell(rider, message, now)
            case Credit(stage=stage, target=target):
                seat = rider.seats.get(stage)
                if seat is not None and seat.state != "closed" and target in seat.used:
                    seat.used[target] -= message.count
                    self.woken(seat)
            case Give(source=source) | Feed(source=source) if source in rider.gone:
                return  # late: it counts as skipped
            case Give(stage=stage, source=source):
                seat = self._seat(rider, stage, now)
                if message.skipped:
                    seat.skips.add(source)
                else:
                    seat.results[source] = message.data
                self._consider(seat, now)
            case Feed(stage=stage):
                seat = self._seat(rider, stage, now)
                if seat.state == "closed":
                    self.return_credit(seat, message)
                    return
                seat.take(message)
                if seat.state == "waiting":
                    self._consider(seat, now)
                elif seat.state == "open":
                    self.woken(seat)

    def _seat(self, rider: Rider, stage: str, now: float) -> Seat:
        station = self.stations[stage]
        return rider.seat(station.config, station.entry, now)

    def _consider(self, seat: Seat, now: float) -> None:
        if seat.state != "waiting":
            return
        verdict = seat.verdict()
        if verdict == "open":
            seat.state = "queued"
            seat.queued_at = now
            self.stations[seat.config.name].queued.append(seat)
        elif verdict == "skip":
            self.finish(seat, None, skipped=True)

    def _tell(self, rider: Rider, message: Tell, now: float) -> None:
        rider.due = now + message.due_in_ms / 1000
        rider.heard_ms = message.heard_ms
        rider.window_ms = message.window_ms
        rider.listener = message.listener
        rider.progress = progress = Progress(message.due_in_ms, message.heard_ms, message.window_ms, message.listener)
        for seat in list(rider.seats.values()):
            if message.listener != "none":
                seat.own_due = None
            if seat.state == "open":
                self.told(self.stations[seat.config.name], seat, progress)
                self.woken(seat)

    def _skip(self, rider: Rider, gone: str, now: float) -> None:
        """A side stage elsewhere is gone: what it would have sent counts as skipped, and no credit of it is waited for."""
        for name in [n for n in rider.plan.stages if n in self.stations]:
            result, chunks = rider.expects(name, gone)
            if result:
                self._for_rider(rider, Give(rider.key, name, gone, skipped=True), now)
            if chunks:
                came = self._seat(rider, name, now).arrived.get(gone, 0)
                self._for_rider(rider, Feed(rider.key, name, gone, came, last=True), now)
            seat = rider.seats.get(name)
            if seat is not None and seat.used.pop(gone, None) is not None and seat.state == "open":
                self.woken(seat)
        rider.gone.add(gone)

    # -- what a task says
    def post(self, stage: str, message: ToLane) -> None:
        if stage in self.stations:
            self.local.append(message)
        else:
            self.exchange.to_stage(stage, message)

    def send_chunk(self, seat: Seat, data: Any, span_ms: float) -> None:
        """A chunk on every live stream and terminal of the seat's stage. Takes a credit on each."""
        name, key, project = seat.config.name, seat.rider.key, seat.config.project_payload
        index = seat.sent
        seat.sent += 1
        seat.made_ms += span_ms
        for target in seat.used:
            seat.used[target] += 1
            part = project[target](data) if target in project else data
            if target == CLIENT:
                for terminal in seat.terminals:
                    self.exchange.to_coordinator(Event(key, terminal, name, index, part, span_ms=span_ms))
                if span_ms:
                    seat.rider.sounded(self.clock(), span_ms / 1000)
            else:
                self.post(target, Feed(key, target, name, index, part, span_ms=span_ms))

    def finish(self, seat: Seat, data: Any, *, skipped: bool = False) -> None:
        """A Result, or a skip: to every ``next``, then the end of every stream and of the terminal."""
        name, key, plan, project = seat.config.name, seat.rider.key, seat.rider.plan, seat.config.project_payload
        try:
            targets = (*plan.next[name], CLIENT) if seat.terminals else plan.next[name]
            parts = {t: project[t](data) if t in project and not skipped else data for t in targets}
        except Exception as error:  # noqa: BLE001 - the author's projection: this request fails, no other
            self.fail(seat, error)
            return
        self.shut(seat, "finished")
        for target in plan.next[name]:
            self.post(target, Give(key, target, name, parts[target], skipped))
        for target in plan.stream[name]:
            self.post(target, Feed(key, target, name, seat.sent, last=True))
        for terminal in seat.terminals:
            self.exchange.to_coordinator(Event(key, terminal, name, seat.sent, parts[CLIENT], last=True, skipped=skipped))

    def fail(self, seat: Seat, error: BaseException) -> None:
        """End the task; the request too unless it can go on without. Only texts meant for clients travel."""
        side = seat.config.name in seat.rider.plan.side
        self.shut(seat, "failed")
        self.exchange.to_coordinator(failure(seat.rider.key, seat.config.name, error, side))
        if side:
            self.finish(seat, None, skipped=True)

    def shut(self, seat: Seat, reason: Reason) -> None:
        """The only place that closes a task: exactly once per opened one."""
        if seat.state == "closed":
            return
        station = self.stations[seat.config.name]
        was, seat.state = seat.state, "closed"
        if was == "open":
            del station.open[id(seat.task)]
            try:
                fence = self.close_task(station, seat, reason)
            except Exception:
                log.exception("close of stage %s failed", seat.config.name, extra={"request_id": seat.rider.key[0]})
                fence = None
            if fence is not None:
                self.fences.append((fence, seat.rider.key))
        elif was == "queued":
            station.queued.remove(seat)
        seat.task = None
        while seat.chunks:
            self.return_credit(seat, seat.chunks.popleft())
        if was != "waiting":
            self.exchange.to_coordinator(Spent(seat.rider.key, seat.config.name, seat.queued_s, seat.steps, seat.step_s))

    def return_credit(self, seat: Seat, chunk: Feed) -> None:
        """The chunk was fed or dropped."""
        if chunk.last:
            return
        message = Credit(seat.rider.key, chunk.source, seat.config.name)
        if chunk.source == CLIENT:
            self.exchange.to_coordinator(message)
        else:
            self.post(chunk.source, message)

    def inputs(self, seat: Seat) -> Any:
        """What ``open`` gets. May raise what the author's merge_fn raises."""
        results, seat.results = seat.results, {}
        if seat.config.merge_fn is not None and not (seat.entry and CLIENT in results):
            return seat.config.merge_fn(seat.rider.request, results)
        return next(iter(results.values()), None)

    # -- ends
    def _close_rider(self, rider: Rider, reason: Reason) -> None:
        for seat in rider.seats.values():
            self.shut(seat, reason)
        del self.riders[rider.key]
        self._forget_idle()
        if any(key == rider.key for _, key in self.fences):
            self.exchange.to_coordinator(Closed(rider.key, self.name))
        else:
            self.exchange.to_coordinator(Receipt(rider.key, self.name))

    def check_fences(self) -> None:
        """A receipt goes out when no fence of an ended request is left."""
        passed = [(fence, key) for fence, key in self.fences if fence.done()]
        for fence in passed:
            self.fences.remove(fence)
        left = {key for _, key in self.fences}
        for key in {key for _, key in passed} - left - self.riders.keys():
            self.exchange.to_coordinator(Receipt(key, self.name))

    def _forget_idle(self) -> None:
        """``forget`` is called only while no task of the conversation is on this lane."""
        if not self.forgetting:
            return
        busy = {r.request.conversation for r in self.riders.values()}
        for conversation in [c for c in self.forgetting if c not in busy]:
            self.forgetting.remove(conversation)
            self.forget_conversation(conversation)


def failure(key: Key, stage: str, error: BaseException, side: bool) -> Failed:
    """The message for an error out of a stage; the text of an unexpected one stays in the log."""
    if isinstance(error, Refused):
        return Failed(key, stage, str(error), error.code, error.param, client_fault=True, side=side)
    if isinstance(error, StageFailed):
        return Failed(key, stage, error.message, error.code, retryable=error.retryable, side=side)
    log.error("stage %s failed", stage, exc_info=error, extra={"request_id": key[0]})
    return Failed(key, stage, "The model failed to process this request.", "model_error", side=side)
