"""A bounded memory of media results by content: the least recently used go first when the bytes run out."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Used from one thread. ``limit`` 0 keeps nothing."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.hits = 0
        self._held: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        self.hits += 1
        return held[0]

    def put(self, key: str, value: Value, size: int) -> None:
        """Keep ``value``, which takes ``size`` bytes, if it fits at all."""
        if size > self.limit:
            return
        if key in self._held:
            self.used -= self._held.pop(key)[1]
        self._held[key] = (value, size)
        self.used += size
        while self.used > self.limit:
            self.used -= self._held.popitem(last=False)[1][1]
