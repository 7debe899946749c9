"""A circuit breaker: a server that keeps failing is left alone for a while (Nygard, "Release It!", 2007)."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """Opens after ``failures`` in a row; ``rest_s`` later one request may try, and its outcome decides."""

    def __init__(self, failures: int = 5, rest_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._rest_s = rest_s
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._probing = False

    def allows(self) -> bool:
        """Whether to try now. Every True must be followed by ``succeeded``, ``failed`` or ``gave_up``."""
        if self._opened is None:
            return True
        if self._probing or self._clock() - self._opened < self._rest_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures, self._opened, self._probing = 0, None, False

    def failed(self) -> None:
        self._failures += 1
        self._probing = False
        if self._failures >= self._limit:
            self._opened = self._clock()

    def gave_up(self) -> None:
        """The try ended without an outcome (aborted): it says nothing about the server."""
        self._probing = False
