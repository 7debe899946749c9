"""How much one caller, and all of them together, may have: sessions at once, openings and responses a minute.

Nothing waits here: what is past a limit is refused at once, with a code and the seconds after which it may succeed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from antiphon.realtime.errors import TooMany


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` of them (ITU-T I.371's leaky bucket, seen from the other side)."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._level, self._at = burst, now

    def take(self, now: float, amount: float = 1.0) -> float:
        """0.0 and the tokens are taken; else the seconds until they would be there, and nothing is taken."""
        self._fill(now)
        if self._level >= amount:
            self._level -= amount
            return 0.0
        return (amount - self._level) / self.rate if self.rate > 0 else math.inf

    def level(self, now: float) -> float:
        """Tokens there now."""
        self._fill(now)
        return self._level

    def _fill(self, now: float) -> None:
        self._level = min(self.burst, self._level + max(0.0, now - self._at) * self.rate)
        self._at = max(self._at, now)


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a server's realtime doors. None means: no bound."""

    sessions: int | None = 64
    sessions_per_key: int | None = None
    openings_per_minute: int | None = None
    responses_per_minute: int | None = None


class Admission:
    """Counts the sessions that are open and refuses the next by name. ``clock`` is monotonic seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._openings: dict[str, TokenBucket] = {}
        self._responses: dict[str, TokenBucket] = {}
        self.closing = False

    @property
    def open(self) -> int:
        """Sessions open now."""
        return self._open.total()

    @contextmanager
    def session(self, caller: str) -> Iterator[None]:
        """One session of ``caller`` for as long as the context is open; raises ``TooMany`` at its entry."""
        self._admit(caller)
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def response(self, caller: str) -> None:
        """Count one response that ``caller`` asked for; raises ``TooMany`` past its rate."""
        if (rate := self.limits.responses_per_minute) is not None:
            self._take(self._responses, caller, rate, "responses")

    def rate_limits(self, caller: str) -> list[dict[str, Any]]:
        """The body of ``rate_limits.updated``. Where there is no limit a large one is told: clients compute with it."""
        rate = self.limits.responses_per_minute
        limit, remaining, reset = 10_000, 10_000, 0.0
        if rate is not None:
            bucket = self._responses.get(caller)
            level = bucket.level(self._clock()) if bucket else float(rate)
            limit, remaining, reset = rate, int(level), round((rate - level) * 60 / rate, 3) if rate else 60.0
        return [
            {"name": "requests", "limit": limit, "remaining": remaining, "reset_seconds": reset},
            {"name": "tokens", "limit": 1_000_000, "remaining": 1_000_000, "reset_seconds": 0.0},
        ]

    def _admit(self, caller: str) -> None:
        limits = self.limits
        if self.closing:
            raise TooMany("The server is shutting down.", code="server_shutting_down", retry_after_s=10.0)
        if limits.sessions is not None and self.open >= limits.sessions:
            raise TooMany(
                f"The server is at its limit of {limits.sessions} realtime sessions.",
                code="server_busy",
                retry_after_s=5.0,
            )
        if limits.sessions_per_key is not None and self._open[caller] >= limits.sessions_per_key:
            raise TooMany(
                f"This key is at its limit of {limits.sessions_per_key} realtime sessions.",
                code="session_limit_exceeded",
                retry_after_s=5.0,
            )
        if (rate := limits.openings_per_minute) is not None:
            self._take(self._openings, caller, rate, "new sessions")

    def _take(self, buckets: dict[str, TokenBucket], caller: str, per_minute: int, what: str) -> None:
        now = self._clock()
        if caller not in buckets:
            # A full bucket is as good as none: only the callers of the last minute are remembered.
            for idle in [c for c, b in buckets.items() if b.level(now) >= b.burst]:
                del buckets[idle]
            buckets[caller] = TokenBucket(per_minute / 60, max(1.0, float(per_minute)), now)
        if wait := buckets[caller].take(now):
            raise TooMany(
                f"This key is at its limit of {per_minute} {what} a minute.",
                code="rate_limit_exceeded",
                retry_after_s=wait,
            )
