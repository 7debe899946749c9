"""Which process of a group serves a request: where its conversation's cache is, else the least loaded. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping

MAX_HOMES = 20_000
"""Conversations that are remembered; the oldest is forgotten first, which costs it a cache and nothing else."""


class Homes:
    def __init__(self, limit: int = MAX_HOMES) -> None:
        self._limit = limit
        self._at: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._count: Counter[str] = Counter()

    def choose(self, group: str, conversation: str, load: Mapping[str, int]) -> str:
        """``load``: the group's processes that can serve, and the requests in each. "" where there is none."""
        home = self._at.get((group, conversation), "") if conversation else ""
        if home in load:
            self._at.move_to_end((group, conversation))
            return home
        chosen = min(load, key=lambda name: (load[name], self._count[name]), default="")
        if conversation and chosen:
            self._drop((group, conversation))
            self._at[group, conversation] = chosen
            self._count[chosen] += 1
            if len(self._at) > self._limit:
                self._drop(next(iter(self._at)))
        return chosen

    def forget(self, group: str, conversation: str) -> None:
        self._drop((group, conversation))

    def lost(self, name: str) -> None:
        """That process and its caches are gone."""
        for key in [k for k, home in self._at.items() if home == name]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        home = self._at.pop(key, None)
        if home is not None:
            self._count[home] -= 1
