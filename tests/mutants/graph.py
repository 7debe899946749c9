"""One-line bugs of the graph runtime, each of which tests/pipelines must find."""

from __future__ import annotations

from tests.mutants.run import Mutant

GRAPH = "pipelines/graph.py"
LANE = "pipelines/lane.py"
SCHEDULER = "pipelines/scheduler.py"
SEAT = "pipelines/seat.py"
COORDINATOR = "pipelines/coordinator.py"
VALIDATION = "pipelines/validation.py"
ASYNC = "pipelines/async_lane.py"

TESTS = (
    "tests/pipelines/test_graph.py",
    "tests/pipelines/test_cases.py",
    "tests/pipelines/test_ends.py",
    "tests/pipelines/test_company.py",
    "tests/pipelines/test_budget.py",
    "tests/pipelines/test_due.py",
    "tests/pipelines/test_runtime.py",
    "tests/pipelines/test_properties.py",
)

MUTANTS = (
    Mutant(
        "credits of a closed task are kept", LANE, "self.return_credit(seat, seat.chunks.popleft())", "seat.chunks.popleft()"
    ),
    Mutant("a skip is not passed on", LANE, "self.finish(seat, None, skipped=True)\n\n    def _tell", "pass\n\n    def _tell"),
    Mutant("a side failure does not skip", LANE, "        if side:", "        if False:"),
    Mutant("who wants only a side stage goes on without it", GRAPH, "if side.issuperset(ends.values()):", "if False:"),
    Mutant("a receipt does not wait for the fence", LANE, "if any(key == rider.key for _, key in self.fences):", "if False:"),
    Mutant("forget does not wait", LANE, "if c not in busy]", "]"),
    Mutant(
        "max_open is ignored",
        SCHEDULER,
        "while station.queued and len(station.open) < station.config.max_open:",
        "while station.queued:",
    ),
    Mutant("a held task is stepped", SCHEDULER, "if not waits and seat.blocked:", "if False:"),
    Mutant("fed without hunger", SCHEDULER, "if not seat.chunks or not verdict.hungry:", "if not seat.chunks:"),
    Mutant("a budget is ignored", SCHEDULER, "spent + cost > station.config.step_budget", "False"),
    Mutant("the small wait behind the large", SCHEDULER, "continue  # the next one may be small", "break  # "),
    Mutant(
        "company is not asked again",
        SCHEDULER,
        "                    verdict = self._feed_and_poll(station, seat, now)",
        "                    pass",
    ),
    Mutant("a late task is not told", SCHEDULER, "if seat.rider.progress is not None:", "if False:"),
    Mutant("a timer is forgotten", SCHEDULER, "if verdict.until is not None:", "if False:"),
    Mutant(
        "a failing step fails the finished too",
        SCHEDULER,
        "outbox.ends.setdefault(id(seat.task), (None, error))",
        "outbox.ends[id(seat.task)] = (None, error)",
    ),
    Mutant("a failing step is swallowed", SCHEDULER, "outbox.ends.setdefault(id(seat.task), (None, error))", "pass"),
    Mutant("an opening failure is lost", SCHEDULER, "self.fail(seat, error)\n                continue", "continue"),
    Mutant("no re-arming without a listener", SCHEDULER, 'if seat.rider.listener == "none":', "if False:"),
    Mutant("latest due first", SCHEDULER, "if best is None or rank < best_rank:", "if best is None or rank > best_rank:"),
    Mutant("an edge is never full", SEAT, "return any(n >= self.config.credits for n in self.used.values())", "return False"),
    Mutant(
        "the window is ignored",
        SEAT,
        "return rider.heard_ms is not None and self.made_ms - rider.heard_ms > rider.window_ms",
        "return False",
    ),
    Mutant(
        "start_on is ignored",
        SEAT,
        'return "open" if all(self._begun(u, n) for u, n in starts.items()) else "wait"',
        'return "open"',
    ),
    Mutant(
        "fan-in at the first Result",
        SEAT,
        "if needed - self.results.keys() - self.skips:",
        "if needed and not self.results and not self.skips:",
    ),
    Mutant(
        "an empty upstream opens",
        SEAT,
        "if any(u in self.upstream_ended and not self.arrived.get(u) for u in starts):",
        "if False:",
    ),
    Mutant(
        "events after the end",
        COORDINATOR,
        "if handle.end is not None:  # nothing of a request follows its end\n            return",
        "pass",
    ),
    Mutant(
        "two ends", COORDINATOR, "if handle.end is not None:\n            return\n        handle.end = end", "handle.end = end"
    ),
    Mutant(
        "lanes are not closed", COORDINATOR, "self.switch.to_lanes(sorted(handle.lanes), Close(handle.key, end.reason))", "pass"
    ),
    Mutant("a side failure ends the request", COORDINATOR, "if not message.side:", "if True:"),
    Mutant(
        "playback is not assumed",
        COORDINATOR,
        "self.tell(handle, due_in_ms=handle.span_ms - heard_ms",
        "(lambda *a, **k: None)(handle, due_in_ms=handle.span_ms - heard_ms",
    ),
    Mutant("a stalled reader is kept", COORDINATOR, "now - handle.last_read > READER_STALLED_S", "False"),
    Mutant("no admission bound", COORDINATOR, "if running >= self.max_requests:", "if False:"),
    Mutant(
        "the deadlock rule forgets Results",
        VALIDATION,
        "for opener in {*senders, *target.start_on} - {sender}:",
        "for opener in {*target.start_on} - {sender}:",
    ),
    Mutant("a task may close itself in its own turn", ASYNC, "asyncio.get_running_loop().call_soon(self.turn)", "self.turn()"),
    Mutant("the async fence is done at once", ASYNC, "return self._coroutine.done()", "return True"),
)
