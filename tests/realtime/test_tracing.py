"""A turn's timeline as JSON, as a log line and as spans; traces kept within bounds."""

from __future__ import annotations

import json
import logging

import pytest

from antiphon.realtime import tracing
from antiphon.realtime.metrics import Metrics
from antiphon.realtime.tracing import JsonFormatter, SessionTrace, Traces, Turn
from antiphon.realtime.watch import Watch
from antiphon.session import events as ev
from tests.session.talk import Talk


def a_turn() -> Turn:
    turn = Turn(began=100.0, unix=1_800_000_000.0, item_id="item_1", response_id="resp_1", early="won")
    turn.mark("speech_started", 100.1)
    turn.mark("speech_stopped", 101.0)
    turn.mark("first_audio", 101.25)
    turn.mark("first_audio", 102.0)  # the first time counts
    turn.generation = {"submitted": 100.9, "queue:thinker": 0.004, "ended": 101.5}
    return turn


def test_times_are_milliseconds_after_the_turn_began() -> None:
    told = a_turn().as_json()
    assert told["at_ms"] == {"speech_started": 100.0, "speech_stopped": 1000.0, "first_audio": 1250.0}
    assert told["generation_at_ms"] == {"submitted": 900.0, "ended": 1500.0}
    assert told["generation_spent_ms"] == {"queue:thinker": 4.0}


def test_a_log_line_is_one_json_object_with_the_turn_in_it() -> None:
    record = logging.LogRecord("antiphon.turns", logging.INFO, "", 0, "turn", (), None)
    record.turn = a_turn().as_json()
    record.session = "sess_1"
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "turn" and line["session"] == "sess_1" and line["turn"]["early"] == "won"


def test_traces_of_closed_sessions_are_bounded_and_open_ones_stay() -> None:
    traces = Traces()
    open_one = traces.open("open", "websocket", "a")
    for n in range(3 * tracing.KEPT_SESSIONS):
        traces.close(traces.open(f"s{n}", "websocket", "b"), "client")
    assert len(traces.list(None)) <= tracing.KEPT_SESSIONS
    assert traces.get("open", "a") is open_one and traces.get("open", "b") is None
    for n in range(2 * tracing.KEPT_TURNS):
        open_one.add(Turn(float(n), float(n)))
    assert len(open_one.as_json()["timeline"]) == tracing.KEPT_TURNS and open_one.summary()["turns"] == 100


def test_spans_cover_the_turn_in_order() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the otel extra is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    tracing.export_spans("sess_1", a_turn())
    *moments, root = kept.get_finished_spans()
    assert [s.name for s in moments] == ["speech_started", "speech_stopped", "first_audio"]
    assert root.name == "turn" and root.attributes["antiphon.early"] == "won"
    assert (root.end_time - root.start_time) / 1e6 == pytest.approx(1250.0, abs=0.01)
    assert all(s.parent.span_id == root.context.span_id for s in moments)


def test_codes_never_make_labels_without_end() -> None:
    metrics = Metrics()
    for n in range(1_000):
        metrics.error(f"code_{n}")
    assert metrics.text().count(b"antiphon_errors_total{") <= 66


def test_the_moments_of_an_abort_are_told_apart() -> None:
    metrics = Metrics()
    metrics.released({"asked": 1.0, "broadcast": 1.001, "closed:mind": 1.02, "closed:voice": 1.05, "released": 1.3})
    text = metrics.text().decode()
    assert 'antiphon_abort_seconds_sum{moment="broadcast"} 0.00099' in text or "0.001" in text
    assert 'antiphon_abort_seconds_bucket{le="0.05",moment="closed"}' in text
    assert 'antiphon_abort_seconds_sum{moment="released"} 0.3' in text or "0.30000000000000004" in text


class Watched(Talk):
    """A conversation whose observer sees what the shell would show it."""

    def __init__(self) -> None:
        self.metrics, self.trace = Metrics(), SessionTrace("sess_1", "websocket", "a")
        self.watch = Watch(self.metrics, self.trace, lambda work: None)
        super().__init__()

    def do(self, event: ev.In) -> list[ev.Out]:
        effects = super().do(event)
        self.watch.saw(event, effects, self.now)
        self.watch.counted(self.session.counts)
        return effects


def test_an_answer_is_interrupted_while_it_is_made_and_while_it_is_only_heard() -> None:
    talk = Watched()
    for made in (False, True, True):
        talk.turn()
        talk.make(talk.gen(), "One two three four.", 3)
        if made:
            talk.end(talk.gen())
            talk.wait(2.9)
    assert [turn.interrupted for turn in talk.trace.turns] == [True, True, False], "the last one is being heard"
    talk.wait(5)
    talk.say()
    assert [turn.interrupted for turn in talk.trace.turns] == [True, True, False, False], "it was heard to its end"
    assert b"antiphon_interruptions_total 2.0" in talk.metrics.text()


def test_a_turn_soon_after_another_begins_where_it_was_spoken() -> None:
    talk = Watched()
    talk.turn()
    talk.make(talk.gen(), "One two three four.", 3)
    onset = talk.now  # less than a second after the last word
    talk.say()
    assert talk.trace.turns[-1].began == pytest.approx(onset, abs=0.033)
    (stop,) = [line for line in talk.metrics.text().decode().splitlines() if "barge_in_stop_seconds_sum" in line]
    assert 0.03 < float(stop.split()[1]) < 0.2, "two windows and what the detector needs, not the turn before"
