"""Results of reading media, by content: bounded, and computed once however many ask at the same time.

A transcript that the client is shown and the one that the Thinker reads are one run: whoever asks first computes, the
others wait; if the one who computes is aborted or fails, the longest waiting takes over. A failure is never kept.
Pure: no locks, no threads, no awaits. A stage calls it from its lane only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Turn(Enum):
    """What an asker has to do when there is no result yet."""

    COMPUTE = auto()
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class Known(Generic[Value]):
    """The result is there."""

    value: Value


@dataclass
class _Flight(Generic[Value]):
    """``askers[0]`` computes, the others wait in the order they came; when ``landed``, they only have to fetch it."""

    askers: list[Hashable] = field(default_factory=list)
    landed: Known[Value] | None = None


@dataclass
class Counts:
    """``hits``: found at once; ``shared``: waited for another's run; ``misses``: computed; ``evicted``."""

    hits: int = 0
    shared: int = 0
    misses: int = 0
    evicted: int = 0


class MediaCache(Generic[Value]):
    """At most ``size`` results, the least recently used go first. Askers are any hashable, one per key at a time."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("a cache holds at least one result")
        self._size = size
        self._known: OrderedDict[Hashable, Value] = OrderedDict()
        self._flights: dict[Hashable, _Flight[Value]] = {}
        self.counts = Counts()

    def ask(self, key: Hashable, who: Hashable) -> Known[Value] | Turn:
        """The result, or whether ``who`` computes it or waits. Asking again tells how things stand now."""
        flight = self._flights.get(key)
        if flight is not None and who in flight.askers:
            return self.peek(key, who)
        if key in self._known:
            self.counts.hits += 1
            self._known.move_to_end(key)
            return Known(self._known[key])
        if flight is not None and flight.landed is not None:
            self.counts.hits += 1
            return flight.landed
        if flight is None:
            self.counts.misses += 1
            flight = self._flights[key] = _Flight()
        else:
            self.counts.shared += 1
        flight.askers.append(who)
        return self.peek(key, who)

    def peek(self, key: Hashable, who: Hashable) -> Known[Value] | Turn:
        """``ask`` for one who computes or waits; changes nothing. Raises KeyError for anybody else."""
        flight = self._flights[key]
        if who not in flight.askers:
            raise KeyError(key)
        if flight.landed is not None:
            return flight.landed
        return Turn.COMPUTE if flight.askers[0] == who else Turn.WAIT

    def put(self, key: Hashable, who: Hashable, value: Value) -> None:
        """The one who computes has the result and leaves. Raises KeyError for anybody else.

        It is kept, if only for a while; those who wait find it even if it has been evicted before they look.
        """
        if self.peek(key, who) is not Turn.COMPUTE:
            raise KeyError(key)
        self._flights[key].landed = Known(value)
        self.leave(key, who)
        self._known[key] = value
        while len(self._known) > self._size:
            self._known.popitem(last=False)
            self.counts.evicted += 1

    def leave(self, key: Hashable, who: Hashable) -> None:
        """``who`` has fetched it, or no longer wants it: aborted, failed. The longest waiting takes over. Idempotent."""
        flight = self._flights.get(key)
        if flight is None or who not in flight.askers:
            return
        flight.askers.remove(who)
        if not flight.askers:
            del self._flights[key]

    def __len__(self) -> int:
        return len(self._known)

    @property
    def in_flight(self) -> int:
        """Keys that somebody computes or waits for."""
        return len(self._flights)
