"""One-line bugs of what happens when a part of the graph is lost, each of which tests/processes must find."""

from __future__ import annotations

from tests.mutants.run import Mutant

LANE = "pipelines/lane.py"
SEAT = "pipelines/seat.py"
COORDINATOR = "pipelines/coordinator.py"
LANES = "pipelines/local_lanes.py"

TESTS = ("tests/processes/test_cut.py", "tests/processes/test_stuck.py")

MUTANTS = (
    Mutant("a lost sender is waited for", SEAT, "or any(self.expects(name, other))", ""),
    Mutant("a lost receiver is waited for", SEAT, "self.sends(name, other) or any", "any"),
    Mutant(
        "whoever received from what is lost fails", SEAT, "            return False, False\n", "            return True, True\n"
    ),
    Mutant("whoever sent to what is lost fails", SEAT, '(seat is None or seat.state != "closed")', "True"),
    Mutant("a Result that has come is waited for", SEAT, "and not seat.given(other)", ""),
    Mutant("a stream that has ended is waited for", SEAT, "and other not in seat.upstream_ended", ""),
    Mutant("a lost side stage's Result is waited for", LANE, "if result:", "if False:"),
    Mutant("a lost side stage's chunks are waited for", LANE, "if chunks:", "if False:"),
    Mutant(
        "a lost side stage's credit is waited for",
        LANE,
        "if seat is not None and seat.used.pop(gone, None) is not None",
        "if False",
    ),
    Mutant("a lost side stage's terminal never ends", COORDINATOR, "            self._skip(handle, side, now)\n", ""),
    Mutant(
        "a request without its side stage waits for it",
        COORDINATOR,
        'self.switch.to_lanes(sorted(lanes), Cut(key, (), "", away))',
        "pass",
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
