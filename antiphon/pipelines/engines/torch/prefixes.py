"""What ended answers have left in the KV cache: a prompt that begins alike is computed from where it differs.

A token is named by a number: its id, or at a place of a medium a number of what stands there, so equal names and equal
positions mean equal keys and values. Whole pages are shared, never copied; the tokens of a broken page are computed again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.pipelines.engines.torch.paged import PAGE, PagedCache, Row, pages

KEPT_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """A row that will not grow. ``names`` [n], ``positions`` [3, n]; ``states`` [media places, H] of those n, if known."""

    row: Row
    names: NDArray[np.int64]
    positions: NDArray[np.float32]
    media: NDArray[np.bool_]
    states: torch.Tensor | None = None

    def common(self, names: NDArray[np.int64], positions: NDArray[np.float32], *, states: bool) -> int:
        """Leading tokens that are the same, in whole pages. ``states``: only as far as those at media places are known."""
        n = min(len(self.names), len(names))
        same = (self.names[:n] == names[:n]) & (self.positions[:, :n] == positions[:, :n]).all(axis=0)
        length = n if same.all() else int(same.argmin())
        if states and self.states is None and self.media[:length].any():
            length = int(self.media.argmax())
        return length // PAGE * PAGE


class Prefixes:
    """The last row of each conversation, ``rows`` of them, the least recently used given up first. Used from one thread."""

    def __init__(self, cache: PagedCache, rows: int = KEPT_ROWS) -> None:
        self._cache = cache
        self._rows = rows
        self._kept: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def could_hold(self, tokens: int) -> bool:
        """Whether a row of so many tokens could be opened, if need be after giving up everything that is kept. Pure."""
        if self._cache.can_hold(tokens):
            return True
        held: dict[int, int] = {}
        for prefix in self._kept.values():
            for page in prefix.row.pages:
                held[page] = held.get(page, 0) + 1
        idle = sum(self._cache.holders(page) == count for page, count in held.items())
        return self._cache.promised - idle + pages(tokens) <= self._cache.total

    def open(
        self, tokens: int, names: NDArray[np.int64], positions: NDArray[np.float32], *, states: bool
    ) -> tuple[Row, Prefix | None] | None:
        """A row that may grow to ``tokens``, begun with what is kept of the same prompt (never all of it: its last token
        must be computed); None when there is no room even without the kept rows. ``row.length`` tokens are there."""
        found = max(
            ((p.common(names[:-1], positions[:, :-1], states=states), key) for key, p in self._kept.items()),
            default=(0, ""),
        )
        length, source = found
        prefix = self._kept[source] if length else None
        if prefix is not None:
            self._kept.move_to_end(source)
        while not self._cache.can_hold(tokens, length // PAGE):
            if not self._kept:
                return None
            key = next(iter(self._kept))
            if self._kept[key] is prefix:
                prefix, length = None, 0
            self.forget(key)
        begins = prefix.row.pages[: length // PAGE] if prefix is not None else ()
        return self._cache.open(tokens, begins), prefix

    def keep(self, conversation: str, prefix: Prefix, *, whole: bool) -> None:
        """``prefix`` instead of what the conversation had. One that was cut short (not ``whole``) does not replace a
        longer one."""
        old = self._kept.get(conversation)
        if not len(prefix.row.pages) or (old is not None and not whole and old.row.length > prefix.row.length):
            self._cache.close(prefix.row)
            return
        self.forget(conversation)
        self._cache.settle(prefix.row)
        self._kept[conversation] = prefix
        while len(self._kept) > self._rows:
            self.forget(next(iter(self._kept)))

    def forget(self, conversation: str) -> None:
        prefix = self._kept.pop(conversation, None)
        if prefix is not None:
            self._cache.close(prefix.row)
