"""A request's life: submit, stream, terminals, abort with receipts. Names no medium and no model.

The coordinator is an actor on its door's thread: ``post`` may be called from any thread, everything else from that one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from antiphon.pipelines.errors import Aborted, Busy, PipelineError, Refused, StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.messages import (
    Close,
    Closed,
    Credit,
    Cut,
    Event,
    Failed,
    Forget,
    Give,
    Key,
    Open,
    Opened,
    Receipt,
    Spent,
    Tell,
    ToCoordinator,
    ToLane,
)  # fmt: skip
from antiphon.pipelines.seat import NO_LISTENER_DUE_S
from antiphon.pipelines.stage import Request

SWEEP_S = 0.2
"""How often assumed progress is told and stalled readers are looked for."""
READER_STALLED_S = 30.0
EARLY_DUE_MS = 100.0


class Switch(Protocol):
    """How the coordinator reaches lanes, wherever they run."""

    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        """The same message for several lanes: one piece of mail to each process."""
        ...

    def to_stage(self, stage: str, message: ToLane) -> None: ...

    def awaits(self, lanes: Iterable[str]) -> set[str]:
        """The processes whose acknowledgement of Open must come before any data is sent."""
        ...


@dataclass
class StageStats:
    """What a stage did since the start: requests, seconds queued, steps, seconds inside them."""

    requests: int = 0
    queued_s: float = 0.0
    steps: int = 0
    step_s: float = 0.0


@dataclass
class Stats:
    submitted: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    refused: int = 0
    stages: dict[str, StageStats] = field(default_factory=dict)


class Coordinator:
    def __init__(
        self,
        config: PipelineConfig,
        switch: Switch,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_requests: int = 256,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.switch = switch
        self.clock = clock
        self.max_requests = max_requests
        self.live: dict[Key, Handle] = {}
        self.stats = Stats()
        self.unavailable: dict[str, str] = {}
        """Stages that cannot serve for now, and why; a plan that needs one is refused by name."""
        self._mail: deque[ToCoordinator] = deque()
        self._wake = wake
        self._next_sweep = 0.0
        self._drained: asyncio.Event | None = None
        self._attempts = 0

    async def drained(self) -> None:
        """Wait until every request has ended and given its receipts."""
        if self.live:
            self._drained = asyncio.Event()
            await self._drained.wait()

    def _on_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()

    def post(self, message: ToCoordinator) -> None:
        """From any thread."""
        self._mail.append(message)
        self._wake()

    # -- submit
    def submit(self, request: Request) -> Handle:
        """Admit and start a request. Raises Refused (also Busy) at once, by name."""
        self._attempts += 1  # an id may come back before the last data of its former use has
        try:
            return self._submit(request, (request.id, self._attempts))
        except Refused:
            self.stats.refused += 1
            raise

    def _submit(self, request: Request, key: Key) -> Handle:
        if any(handle.request.id == request.id for handle in self._of_id(request.id)):
            raise Refused(f"request id {request.id!r} is in use", code="request_id_in_use", param="request_id")
        running = sum(1 for h in self.live.values() if h.end is None)
        if running >= self.max_requests:
            raise Busy(f"the server is busy: {running} requests are running")
        plan = self.config.plan(request)
        away = tuple(s for s in plan.stages if s in self.unavailable)
        missing = [s for s in away if s not in plan.side]
        if missing:
            raise Busy(f"stage {missing[0]} is not available: {self.unavailable[missing[0]]}", retry_after_s=2.0)
        now = self.clock()
        lanes = {self.config.stages[s].lane for s in plan.stages if s not in away}
        handle = Handle(self, key, request, plan, lanes, now)
        self.live[key] = handle
        self.stats.submitted += 1
        due_in_ms = {"confirmed": 0.0, "early": EARLY_DUE_MS, "none": NO_LISTENER_DUE_S * 1000}[request.listener]
        # every lane knows the request before any data can reach it
        self.switch.to_lanes(sorted(lanes), Open(key, request, plan, due_in_ms))
        handle.unacknowledged = self.switch.awaits(lanes)
        if away:
            self.switch.to_lanes(sorted(lanes), Cut(key, (), "", away))
            self._skip(handle, away, now)
        if not handle.unacknowledged and handle.end is None:
            self._start(handle, now)
        self._next_sweep = min(self._next_sweep, now + SWEEP_S)
        self._wake()
        return handle

    def _of_id(self, request_id: str) -> Iterable[Handle]:
        return (h for (rid, _), h in self.live.items() if rid == request_id and h.end is None)

    def _start(self, handle: Handle, now: float) -> None:
        handle.timeline["started"] = now
        entry = self.config.entry
        self.switch.to_stage(entry, Give(handle.key, entry, "client", handle.request.body))
        handle.started = True
        handle.flush_input()

    # -- the mail
    def turn(self, now: float) -> float | None:
        """Read the mail, sweep when it is time; returns when to be called again, None: on mail."""
        while self._mail:
            self._handle(self._mail.popleft(), now)
        if now >= self._next_sweep:
            for handle in list(self.live.values()):
                self._sweep(handle, now)
            self._next_sweep = now + SWEEP_S
        return self._next_sweep if any(h.end is None for h in self.live.values()) else None

    def _handle(self, message: ToCoordinator, now: float) -> None:
        handle = self.live.get(message.key)
        if handle is None:
            return
        match message:
            case Event():
                self._event(handle, message, now)
            case Spent(stage=stage):
                stats = self.stats.stages.setdefault(stage, StageStats())
                stats.requests += 1
                stats.queued_s += message.queued_s
                stats.steps += message.steps
                stats.step_s += message.step_s
                handle.timeline[f"queue:{stage}"] = message.queued_s
                handle.timeline[f"step:{stage}"] = message.step_s
            case Credit():
                handle.input_taken()
            case Failed():
                if not message.side:
                    self._finish(handle, End("failed", _error(message)), now)
            case Opened(process=process):
                handle.unacknowledged.discard(process)
                if not handle.unacknowledged and not handle.started and handle.end is None:
                    self._start(handle, now)
            case Closed(lane=lane):
                handle.timeline[f"closed:{lane}"] = now
            case Receipt(lane=lane):
                self._receipt(handle, lane, now)

    def _event(self, handle: Handle, event: Event, now: float) -> None:
        if handle.end is not None:  # nothing of a request follows its end
            return
        if event.terminal not in handle.left:  # nor of a terminal its own, if the stage was skipped meanwhile
            return
        if not event.last or event.data is not None:
            handle.timeline.setdefault(f"first:{event.terminal}", now)
        if event.span_ms > 0:
            if handle.first_span_at is None:
                handle.first_span_at = now
                self._next_sweep = min(self._next_sweep, now)
            handle.span_ms += event.span_ms
        if event.last:
            handle.timeline[f"done:{event.terminal}"] = now
            handle.left.discard(event.terminal)
        handle.push(event, now)
        if not handle.left:
            self._finish(handle, End("finished"), now)

    def _receipt(self, handle: Handle, lane: str, now: float) -> None:
        handle.timeline.setdefault(f"closed:{lane}", now)
        handle.timeline[f"released:{lane}"] = now
        handle.lanes.discard(lane)
        if not handle.lanes:
            handle.timeline["released"] = now
            del self.live[handle.key]
            handle.on_released()
            if not self.live:
                self._on_drained()

    def _finish(self, handle: Handle, end: End, now: float) -> None:
        if handle.end is not None:
            return
        handle.end = end
        handle.timeline["ended"] = now
        match end.reason:
            case "finished":
                self.stats.finished += 1
            case "failed":
                self.stats.failed += 1
            case "aborted":
                self.stats.aborted += 1
        self.switch.to_lanes(sorted(handle.lanes), Close(handle.key, end.reason))
        handle.timeline["broadcast"] = self.clock()
        handle.push(end, now)

    def _sweep(self, handle: Handle, now: float) -> None:
        """Assume real-time playback where the client tells nothing; abort what nobody reads."""
        if handle.end is not None:
            return
        if handle.events and now - handle.last_read > READER_STALLED_S:
            self.abort(handle, "reader_stalled")
            return
        if handle.told or handle.first_span_at is None or handle.listener == "none":
            return
        heard_ms = 0.0
        if handle.listener == "confirmed":
            heard_ms = min(handle.span_ms, (now - handle.first_span_at) * 1000)
        self.tell(handle, due_in_ms=handle.span_ms - heard_ms, heard_ms=heard_ms, window_ms=handle.window_ms)

    # -- what a client asks
    def tell(self, handle: Handle, *, due_in_ms: float, heard_ms: float | None, window_ms: float) -> None:
        self.switch.to_lanes(sorted(handle.lanes), Tell(handle.key, due_in_ms, heard_ms, window_ms, handle.listener))

    def abort(self, handle: Handle, reason: str) -> None:
        """Idempotent. What was not read is dropped; the End comes at once, the receipts after it."""
        if handle.end is not None:
            return
        now = self.clock()
        handle.timeline["asked"] = now
        handle.events.clear()
        self._finish(handle, End("aborted", Aborted(reason)), now)

    def forget(self, conversation: str) -> None:
        self.switch.to_lanes(self.config.lanes, Forget(conversation))

    def lanes_lost(
        self, lanes: set[str], error: StageFailed, keys: Container[Key] | None = None, *, stuck: bool = False
    ) -> None:
        """Their process died: only the requests that had something in it fail; its receipts will never come.

        ``keys``: the requests it served, where the same lanes run in other processes too. ``stuck``: they live, but a step
        does not return; a receipt comes when it does. What cannot be told from here the neighbours are asked: a request whose
        part there is over goes on, and so does one that misses no more than side stages.
        """
        now = self.clock()
        of_lanes = [s.name for name, stages in self.config.lanes.items() if name in lanes for s in stages]
        for handle in list(self.live.values()):
            lost = handle.lanes & lanes
            if not lost or (keys is not None and handle.key not in keys):
                continue
            if not stuck:
                handle.lanes -= lost
            side = tuple(s for s in of_lanes if s in handle.plan.side)
            stages = tuple(s for s in of_lanes if s not in handle.plan.side)
            self._skip(handle, side, now)
            if not handle.started or any(handle.plan.ends[t] in stages for t in handle.left):
                self._finish(handle, End("failed", error), now)
            elif handle.end is None:
                self.switch.to_lanes(sorted(handle.lanes - lost), Cut(handle.key, stages, error.message, side))
            if not handle.lanes:
                handle.lanes.add("")
                self._receipt(handle, "", now)

    def _skip(self, handle: Handle, side: Sequence[str], now: float) -> None:
        """The terminals of these side stages end empty."""
        for terminal, stage in handle.plan.ends.items():
            if stage in side and terminal in handle.left:
                self._event(handle, Event(handle.key, terminal, stage, 0, last=True, skipped=True), now)


def _error(message: Failed) -> PipelineError:
    if message.client_fault:
        return Refused(message.message, code=message.code, param=message.param)
    return StageFailed(message.stage, message.message, code=message.code, retryable=message.retryable)
