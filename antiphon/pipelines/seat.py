"""One request at one stage: what has come for it, when it may open, its credits. Pure bookkeeping, no stage is called."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container
from typing import Any, Literal

from antiphon.pipelines.graph import Plan, StageConfig
from antiphon.pipelines.messages import Feed, Key, Open
from antiphon.pipelines.stage import CLIENT, Listener, Progress, Request

DEFAULT_WINDOW_MS = 4000.0
"""How far ahead of the listener a stage may synthesise: nobody makes minutes that an interruption throws away."""
NO_LISTENER_DUE_S = 2.0
State = Literal["waiting", "queued", "open", "closed"]
Verdict = Literal["wait", "open", "skip"]


class Rider:
    """One attempt at a request on one lane."""

    __slots__ = ("due", "gone", "heard_ms", "key", "listener", "plan", "progress", "request", "seats", "window_ms")

    def __init__(self, message: Open, now: float) -> None:
        self.key: Key = message.key
        self.request: Request = message.request
        self.plan: Plan = message.plan
        self.due = now + message.due_in_ms / 1000
        self.listener: Listener = message.request.listener
        self.heard_ms: float | None = None
        self.window_ms = DEFAULT_WINDOW_MS
        self.progress: Progress | None = None
        """What was told last: a task that opens later is told it then."""
        self.seats: dict[str, Seat] = {}
        self.gone: set[str] = set()
        """Side stages elsewhere that count as skipped, whatever still comes of them."""

    def seat(self, config: StageConfig, entry: bool, now: float) -> Seat:
        """This request's seat at a stage, made at its first message."""
        if config.name not in self.seats:
            self.seats[config.name] = Seat(self, config, entry, now)
        return self.seats[config.name]

    def sounded(self, now: float, seconds: float) -> None:
        """So much sound has left for the listener, who runs out of it so much later. He is told of (``Tell``) at most five
        times a second; until then the lane that makes the sound would take him for the most urgent of all."""
        if self.listener == "confirmed":
            self.due = max(self.due, now) + seconds

    def expects(self, name: str, other: str) -> tuple[bool, bool]:
        """Whether the stage ``name`` here still waits for the Result of ``other``, and for chunks of it."""
        plan, seat = self.plan, self.seats.get(name)
        if seat is None:
            return other in plan.results[name], other in plan.streams[name]
        if seat.state == "closed":
            return False, False
        result = other in plan.results[name] and seat.state == "waiting" and not seat.given(other)
        return result, other in plan.streams[name] and other not in seat.upstream_ended

    def sends(self, name: str, other: str) -> bool:
        """Whether the stage ``name`` here may still have something for ``other``."""
        seat = self.seats.get(name)
        return (other in self.plan.next[name] or other in self.plan.stream[name]) and (seat is None or seat.state != "closed")

    def tied_to(self, stages: Collection[str], here: Container[str]) -> str:
        """The first of ``stages`` that a stage ``here`` still expects something of, or still sends to; "" when none."""
        for name in self.plan.stages:
            if name in here:
                for other in stages:
                    if self.sends(name, other) or any(self.expects(name, other)):
                        return other
        return ""


class Seat:
    """States: waiting (for inputs) -> queued (for a slot) -> open (a task exists) -> closed."""

    __slots__ = (
        "arrived", "chunks", "config", "entry", "made_ms", "own_due", "queued_at", "queued_s", "results", "rider",
        "sent", "skips", "started", "state", "step_s", "steps", "task", "terminals", "upstream_ended", "used",
    )  # fmt: skip

    def __init__(self, rider: Rider, config: StageConfig, entry: bool, now: float) -> None:
        self.rider = rider
        self.config = config
        self.entry = entry
        self.state: State = "waiting"
        self.task: Any = None
        self.results: dict[str, Any] = {}
        self.skips: set[str] = set()
        self.chunks: deque[Feed] = deque()
        self.arrived: dict[str, int] = {}
        self.upstream_ended: set[str] = set()
        plan = rider.plan
        self.terminals = tuple(t for t, stage in plan.ends.items() if stage == config.name)
        self.used: dict[str, int] = {t: 0 for t in plan.stream[config.name] if t not in rider.gone}
        if self.terminals:
            self.used[CLIENT] = 0
        self.sent = 0
        self.made_ms = 0.0
        self.own_due: float | None = None
        self.queued_at = now
        self.queued_s = 0.0
        self.started = False
        self.steps = 0
        self.step_s = 0.0

    @property
    def due(self) -> float:
        """When its next step should be done. A request without a listener is re-armed by each step: never first for
        long, never starved."""
        return self.rider.due if self.own_due is None else self.own_due

    def given(self, upstream: str) -> bool:
        """Its Result, or its skip, has come (of a seat that still waits)."""
        return upstream in self.results or upstream in self.skips

    def take(self, message: Feed) -> None:
        """A chunk has come."""
        self.chunks.append(message)
        if message.last:
            self.upstream_ended.add(message.source)
        else:
            self.arrived[message.source] = self.arrived.get(message.source, 0) + 1

    def verdict(self) -> Verdict:
        """May it open? Fan-in and partial start, both over the live upstreams only."""
        plan, name = self.rider.plan, self.config.name
        needed = plan.results[name] or (frozenset((CLIENT,)) if self.entry else frozenset())
        if needed - self.results.keys() - self.skips:
            return "wait"
        if needed and needed <= self.skips:
            return "skip"
        live = plan.streams[name]
        starts = {u: n for u, n in self.config.start_on.items() if u in live}
        if starts:
            if any(u in self.upstream_ended and not self.arrived.get(u) for u in starts):
                return "skip"
            return "open" if all(self._begun(u, n) for u, n in starts.items()) else "wait"
        if needed or not live:
            return "open"
        if all(u in self.upstream_ended and not self.arrived.get(u) for u in live):
            return "skip"
        return "open" if any(self._begun(u, 1) for u in live) else "wait"

    def _begun(self, upstream: str, count: int) -> bool:
        arrived = self.arrived.get(upstream, 0)
        return arrived >= count or (upstream in self.upstream_ended and arrived > 0)

    def edge_full(self) -> bool:
        """No credit is left on one of its edges: it may not be stepped."""
        return any(n >= self.config.credits for n in self.used.values())

    def ahead(self) -> bool:
        """It has made more than the listener's window holds."""
        rider = self.rider
        return rider.heard_ms is not None and self.made_ms - rider.heard_ms > rider.window_ms

    @property
    def blocked(self) -> bool:
        return self.edge_full() or self.ahead()

    def input_sources(self) -> frozenset[str]:
        """Whose chunks will reach it."""
        live = self.rider.plan.streams[self.config.name]
        return live | {CLIENT} if self.entry and self.rider.request.streams_input else live
