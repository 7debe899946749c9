"""One request as its client sees it: events in order, then exactly one End. No awaits here; ``client.py`` adds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from antiphon.pipelines.errors import PipelineError
from antiphon.pipelines.graph import Plan
from antiphon.pipelines.messages import Credit, Event, Feed, Key
from antiphon.pipelines.seat import DEFAULT_WINDOW_MS
from antiphon.pipelines.stage import CLIENT, Listener, Reason, Request

if TYPE_CHECKING:
    from antiphon.pipelines.coordinator import Coordinator

INPUT_CREDITS = 8
"""Chunks from the client that the entry stage has not been fed yet."""


@dataclass(frozen=True, slots=True)
class End:
    reason: Reason
    error: PipelineError | None = None


class Handle:
    def __init__(self, coordinator: Coordinator, key: Key, request: Request, plan: Plan, lanes: set[str], now: float) -> None:
        self.key = key
        self.request = request
        self.plan = plan
        self.lanes = lanes
        self.unacknowledged: set[str] = set()
        self.started = False
        self.places: dict[str, str] = {}
        """Process group -> the process of it that serves this request, where there are processes."""
        self.owed: dict[tuple[str, str], int] = {}
        """(stage, target) -> credits that have not been sent to its process yet."""
        self.left = set(plan.ends)
        self.events: deque[Event | End] = deque()
        self.end: End | None = None
        self.last_read = now
        self.timeline: dict[str, float] = {"submitted": now}
        self.listener: Listener = request.listener
        self.window_ms = DEFAULT_WINDOW_MS
        self.told = False
        self.first_span_at: float | None = None
        self.span_ms = 0.0
        self.on_event: Callable[[], None] = lambda: None
        self.on_input_credit: Callable[[], None] = lambda: None
        self.on_released: Callable[[], None] = lambda: None
        self._coordinator = coordinator
        self._input: deque[Feed] = deque()
        self._input_sent = 0
        self._input_in_flight = 0

    # -- events
    def push(self, event: Event | End, now: float) -> None:
        if not self.events:
            self.last_read = now  # the reader is late from the first event that waits for it
        self.events.append(event)
        self.on_event()

    def read(self) -> Event | End | None:
        """The next event, or None. Reading a chunk gives its credit back."""
        if not self.events:
            return None
        self.last_read = self._coordinator.clock()
        event = self.events.popleft()
        if isinstance(event, Event) and not event.last and self.end is None:
            self._coordinator.switch.to_stage(event.stage, Credit(self.key, event.stage, CLIENT))
        return event

    # -- the client as an upstream
    @property
    def input_full(self) -> bool:
        return self._input_in_flight >= INPUT_CREDITS

    def feed(self, data: Any, *, last: bool = False) -> None:
        """Feed the entry stage. The caller waits while ``input_full``."""
        if not self.request.streams_input:
            raise ValueError("this request did not say that it streams input")
        entry = self._coordinator.config.entry
        self._input.append(Feed(self.key, entry, CLIENT, self._input_sent, data, last))
        self._input_sent += 1
        if not last:
            self._input_in_flight += 1
        if self.started:
            self.flush_input()

    def flush_input(self) -> None:
        while self._input:
            message = self._input.popleft()
            self._coordinator.switch.to_stage(message.stage, message)

    def input_taken(self) -> None:
        self._input_in_flight -= 1
        self.on_input_credit()

    # -- control
    def tell(
        self,
        *,
        due_in_ms: float,
        heard_ms: float | None,
        window_ms: float | None = None,
        listener: Listener | None = None,
    ) -> None:
        """The client knows its listener: nothing is assumed from now on."""
        self.told = True
        if listener is not None:
            self.listener = listener
        if window_ms is not None:
            self.window_ms = window_ms
        if self.end is None:
            self._coordinator.tell(self, due_in_ms=due_in_ms, heard_ms=heard_ms, window_ms=self.window_ms)

    def abort(self, reason: str = CLIENT) -> None:
        self._coordinator.abort(self, reason)
