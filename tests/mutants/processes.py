"""One-line bugs of what happens when a part of the graph is lost, each of which tests/processes must find."""

from __future__ import annotations

from tests.mutants.run import Mutant

SEAT = "pipelines/seat.py"
COORDINATOR = "pipelines/coordinator.py"
LANES = "pipelines/local_lanes.py"

TESTS = ("tests/processes/test_cut.py", "tests/processes/test_stuck.py")

MUTANTS = (
    Mutant("a lost sender of chunks is waited for", SEAT, "if other in plan.streams[name] and not", "if False and not"),
    Mutant("a lost sender of a Result is waited for", SEAT, "if other in plan.results[name] and other", "if False and other"),
    Mutant("a lost receiver is waited for", SEAT, "if other in plan.next[name] or other in plan.stream[name]:", "if False:"),
    Mutant(
        "whatever passed through what is lost fails",
        SEAT,
        'if seat is not None and seat.state == "closed":\n                continue\n            given',
        "given",
    ),
    Mutant(
        "a terminal that is lost never ends", COORDINATOR, "any(handle.plan.ends[t] in stages for t in handle.left)", "False"
    ),
    Mutant("a receipt of the dead is waited for", COORDINATOR, "handle.lanes -= lost\n", "pass\n"),
    Mutant(
        "the neighbours are not asked",
        COORDINATOR,
        "elif handle.end is None:\n                self.switch",
        "elif False:\n                self.switch",
    ),
    Mutant("a stage that hangs is given more", LANES, "self._refuse(name, f", "(name, f"),
    Mutant("a stage that returned stays refused", LANES, "self._coordinator.unavailable.pop(config.name, None)", "pass"),
    Mutant("a stuck lane counts as gone", LANES, "stuck, stuck=True)", "stuck)"),
)
