"""Prometheus metrics of the realtime doors and of the graph behind them, in a registry of their own.

No label holds anything a client wrote: codes and phases come from this code, stages from the pipeline's declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PHASES = ("silence", "transcript", "first_text", "first_audio", "voice_to_voice", "response")
"""From the user's last voiced sample: until the turn was decided over, its transcript was known, the first text, the
first audio, was sent (``voice_to_voice`` is the last again, for spoken turns that were answered aloud); and a response
from its creation to its end."""

_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_TURN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_KNOWN_CODES = 64


class Metrics:
    """One server's counters. ``text()`` is what ``/metrics`` answers."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.sessions_open = Gauge("antiphon_sessions_open", "Open sessions", ["transport"], registry=r)
        self.sessions = Counter("antiphon_sessions", "Sessions, by how they ended", ["transport", "ending"], registry=r)
        self.refused = Counter("antiphon_sessions_refused", "Sessions refused at the door", ["code"], registry=r)
        self.turns = Counter("antiphon_turns", "Spoken turns of users", ["outcome"], registry=r)
        self.responses = Counter("antiphon_responses", "Responses, by final status", ["status"], registry=r)
        self.phase = Histogram("antiphon_turn_phase_seconds", "Phases of a turn", ["phase"], buckets=_TURN, registry=r)
        self.early = Counter("antiphon_early_responses", "Early responses", ["outcome"], registry=r)
        self.interruptions = Counter("antiphon_interruptions", "Answers cut by speech, being made or heard", registry=r)
        self.barge_in_stop = Histogram(
            "antiphon_barge_in_stop_seconds",
            "From the first voiced sample of an interruption to the last event of the cut response",
            buckets=_TURN,
            registry=r,
        )
        self.underruns = Counter("antiphon_underruns", "Times a listener ran out of audio inside an answer", registry=r)
        self.abort = Histogram(
            "antiphon_abort_seconds",
            "Of an abort, after it was asked: broadcast, closed (each lane's last close), released (device done)",
            ["moment"],
            buckets=_FINE,
            registry=r,
        )
        self.aborts = Counter("antiphon_aborts", "Generations aborted", ["kind"], registry=r)
        self.generations = Counter("antiphon_generations", "Requests to the graph", ["kind"], registry=r)
        self.queue = Histogram(
            "antiphon_stage_queue_seconds", "A request's wait for a stage", ["stage"], buckets=_FINE, registry=r
        )
        self.step = Histogram(
            "antiphon_stage_step_seconds", "A request's time in a stage", ["stage"], buckets=_TURN, registry=r
        )
        self.errors = Counter("antiphon_errors", "Errors told to clients", ["code"], registry=r)
        self.broken = Counter("antiphon_broken_sessions", "Sessions ended by a fault of the server", registry=r)
        self.stalled = Counter("antiphon_stalled_readers", "Sessions closed because the client did not read", registry=r)
        self.conversations = Counter("antiphon_conversation_events", "What happened in conversations", ["event"], registry=r)
        self._codes: set[str] = set()

    def error(self, code: str | None) -> None:
        """Count an error by its code; the codes of a misbehaving model server do not make labels without end."""
        name = code or "none"
        if name not in self._codes and len(self._codes) >= _KNOWN_CODES:
            name = "other"
        self._codes.add(name)
        self.errors.labels(name).inc()

    def released(self, timeline: Mapping[str, float]) -> None:
        """The moments of one abort, from the generation's timeline (seconds on one clock)."""
        asked = timeline.get("asked")
        if asked is None:
            return
        moments = {
            "broadcast": timeline.get("broadcast"),
            "closed": max((at for name, at in timeline.items() if name.startswith("closed:")), default=None),
            "released": timeline.get("released"),
        }
        for name, at in moments.items():
            if at is not None:
                self.abort.labels(name).observe(max(0.0, at - asked))

    def stages(self, timeline: Mapping[str, float]) -> None:
        """A finished generation's time in each stage."""
        for name, seconds in timeline.items():
            kind, _, stage = name.partition(":")
            if kind == "queue":
                self.queue.labels(stage).observe(seconds)
            elif kind == "step":
                self.step.labels(stage).observe(seconds)

    def watch_graph(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        """Export the pipeline's own counts at every scrape."""
        self.registry.register(_StatsCollector("graph", stats))

    def watch_ears(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        """Export the ears' counts at every scrape: windows, fallbacks, failures, late and failed turn scores."""
        self.registry.register(_StatsCollector("ears", stats))

    def conversation(self, counts: Mapping[str, int]) -> None:
        """Count what a conversation's machine has counted since it was last asked."""
        for name, number in counts.items():
            if number > 0:
                self.conversations.labels(name).inc(number)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _StatsCollector(Collector):
    """A snapshot of counts: numbers become ``antiphon_<part>_<name>``; numbers by stage get a label."""

    def __init__(self, part: str, stats: Callable[[], Mapping[str, Any]]) -> None:
        self._part = part
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        by_stage: dict[str, GaugeMetricFamily] = {}
        for name, value in self._stats().items():
            if isinstance(value, int | float):
                count = CounterMetricFamily(f"antiphon_{self._part}_{name}", f"The {self._part}'s {name} since its start")
                count.add_metric([], float(value))
                yield count
            elif isinstance(value, Mapping):
                for stage, figures in value.items():
                    for figure, number in figures.items() if isinstance(figures, Mapping) else ():
                        if isinstance(number, int | float):
                            title = f"antiphon_{self._part}_stage_{figure}"
                            help_text = f"A stage's {figure} since the start"
                            family = by_stage.setdefault(figure, GaugeMetricFamily(title, help_text, labels=["stage"]))
                            family.add_metric([str(stage)], float(number))
        yield from by_stage.values()
