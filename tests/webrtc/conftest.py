"""Calls are timed by a loop whose clock stands still while the machine does something else."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

WORK_S = 0.01
"""What the callbacks of one turn of the loop may take, ..."""
LATE_S = 0.005
"""... and how much later than it asked for it may wake, before that is the machine's doing."""


class Watched(selectors.DefaultSelector):
    """``lost``: seconds in which the loop should have run, and did not."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0.0
        self._woke = time.monotonic()
        self._asleep = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        asked = time.monotonic()
        self.lost += max(0.0, asked - self._woke - WORK_S)
        self._asleep = True
        found = super().select(timeout)
        self._asleep = False
        self._woke = time.monotonic()
        late = 0.0 if timeout is None else self._woke - asked - max(0.0, timeout)
        self.lost += late if late > LATE_S else 0.0
        return found

    def time(self) -> float:
        """Never less than before."""
        now = time.monotonic()
        return (now if self._asleep else min(now, self._woke + WORK_S)) - self.lost


class Steady(asyncio.SelectorEventLoop):
    """Both ends of a call are on it: what a busy machine takes from them, neither notices. Sound, line and timers are real."""

    def __init__(self) -> None:
        self._watched = Watched()
        super().__init__(self._watched)

    def time(self) -> float:
        return self._watched.time()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], Any]]:
    return {"steady": Steady}
