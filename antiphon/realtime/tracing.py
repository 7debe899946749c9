"""What happened when: each turn's timeline, kept for a while, told as JSON, and as spans where OpenTelemetry is installed.

Times are milliseconds after the turn began. No spoken or written word of a user or of the model is ever in a trace.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

KEPT_TURNS = 50
KEPT_SESSIONS = 100
log = logging.getLogger("antiphon.turns")


@dataclass(slots=True)
class Turn:
    """One turn: from the user's speech, or from a response that was asked for, to the response's end.

    ``at`` holds moments in seconds on the loop's clock; ``began`` is the first of them and ``unix`` the same as wall time.
    """

    began: float
    unix: float
    item_id: str | None = None
    response_id: str | None = None
    at: dict[str, float] = field(default_factory=dict)
    generation: dict[str, float] = field(default_factory=dict)
    early: str | None = None
    status: str | None = None
    interrupted: bool = False
    audio_ms: float = 0.0

    def mark(self, name: str, now: float) -> None:
        """The first time counts."""
        self.at.setdefault(name, now)

    def as_json(self) -> Json:
        def ms(seconds: float) -> float:
            return round((seconds - self.began) * 1000, 1)

        spent = {k: round(v * 1000, 1) for k, v in self.generation.items() if k.startswith(("queue:", "step:"))}
        moments = {k: ms(v) for k, v in self.generation.items() if k not in spent}
        return {
            "item_id": self.item_id,
            "response_id": self.response_id,
            "started_at": round(self.unix, 3),
            "status": self.status,
            "early": self.early,
            "interrupted": self.interrupted,
            "audio_ms": round(self.audio_ms),
            "at_ms": {name: ms(at) for name, at in self.at.items()},
            "generation_at_ms": moments,
            "generation_spent_ms": spent,
        }


class SessionTrace:
    """The last turns of one session."""

    def __init__(self, session_id: str, transport: str, caller: str) -> None:
        self.session_id = session_id
        self.transport = transport
        self.caller = caller
        self.opened = time.time()
        self.closed: float | None = None
        self.ending: str | None = None
        self.turns: deque[Turn] = deque(maxlen=KEPT_TURNS)
        self.counted = 0

    def add(self, turn: Turn) -> None:
        """A turn begins."""
        self.turns.append(turn)
        self.counted += 1

    def done(self, turn: Turn) -> None:
        """A turn has ended: one structured log line, and spans."""
        told = turn.as_json()
        log.info("turn", extra={"session": self.session_id, "turn": told})
        export_spans(self.session_id, turn)

    def summary(self) -> Json:
        return {
            "id": self.session_id,
            "object": "realtime.session.summary",
            "transport": self.transport,
            "caller": self.caller,
            "opened_at": round(self.opened, 3),
            "closed_at": round(self.closed, 3) if self.closed else None,
            "ending": self.ending,
            "turns": self.counted,
        }

    def as_json(self) -> Json:
        return {**self.summary(), "object": "realtime.session.trace", "timeline": [t.as_json() for t in self.turns]}


class Traces:
    """The sessions that are open and the last ones that have closed."""

    def __init__(self) -> None:
        self._traces: dict[str, SessionTrace] = {}

    def open(self, session_id: str, transport: str, caller: str) -> SessionTrace:
        while len(self._traces) >= KEPT_SESSIONS:
            closed = next((i for i, t in self._traces.items() if t.closed is not None), None)
            if closed is None:
                break
            del self._traces[closed]
        trace = self._traces[session_id] = SessionTrace(session_id, transport, caller)
        return trace

    def close(self, trace: SessionTrace, ending: str) -> None:
        trace.closed, trace.ending = time.time(), ending

    def get(self, session_id: str, caller: str | None) -> SessionTrace | None:
        """That trace; ``caller`` None may see everyone's."""
        trace = self._traces.get(session_id)
        return trace if trace is not None and caller in (None, trace.caller) else None

    def list(self, caller: str | None) -> list[Json]:
        """Newest first."""
        mine = [t for t in self._traces.values() if caller in (None, t.caller)]
        return [t.summary() for t in reversed(mine)]


def export_spans(session_id: str, turn: Turn) -> None:
    """A span for the turn and one for each of its moments' intervals; nothing without the ``otel`` extra."""
    try:
        from opentelemetry import trace
    except ImportError:
        return
    tracer = trace.get_tracer("antiphon")

    def nanoseconds(at: float) -> int:
        return int((turn.unix + at - turn.began) * 1e9)

    attributes: dict[str, Any] = {
        "antiphon.session": session_id,
        "antiphon.response": turn.response_id or "",
        "antiphon.status": turn.status or "",
        "antiphon.early": turn.early or "",
        "antiphon.interrupted": turn.interrupted,
    }
    root = tracer.start_span("turn", start_time=nanoseconds(turn.began), attributes=attributes)
    context = trace.set_span_in_context(root)
    moments = sorted(turn.at.items(), key=lambda item: item[1])
    before = turn.began
    for name, at in moments:
        span = tracer.start_span(name, context=context, start_time=nanoseconds(before))
        span.end(nanoseconds(at))
        before = at
    root.end(nanoseconds(before))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with whatever a record carries in ``extra``."""

    _PLAIN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
        "message",
        "asctime",
        "taskName",
        "color_message",
    }

    def format(self, record: logging.LogRecord) -> str:
        told: Json = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra: Mapping[str, Any] = {k: v for k, v in vars(record).items() if k not in self._PLAIN}
        told.update(extra)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)
