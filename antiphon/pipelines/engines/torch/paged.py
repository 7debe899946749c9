"""A KV cache in pages, shared by the rows of a continuous batch.

Each row owns whole pages and a table of them (Kwon et al., "Efficient Memory Management for Large Language Model Serving
with PagedAttention", SOSP 2023); attention itself stays the model's own: a forward gathers the pages of its rows. So rows
of any length share a batch, one that ends gives its pages back at once, and none ever sees another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from antiphon.pipelines.engines.torch.place import Place

PAGE = 32
"""Tokens in a page."""


class Row:
    """One sequence's pages. ``length`` tokens are cached; ``reserved`` pages are promised to it."""

    __slots__ = ("length", "pages", "reserved")

    def __init__(self, reserved: int) -> None:
        self.length = 0
        self.pages: list[int] = []
        self.reserved = reserved


class PagedCache:
    """Pages for ``tokens`` tokens in all; storage grows as it is used, to that bound. ``promised``: pages, to open rows."""

    def __init__(self, tokens: int, place: Place) -> None:
        self.total = -(-tokens // PAGE)
        self.place = place
        self._free: list[int] = []
        self._made = 0
        self.promised = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    @property
    def tokens(self) -> int:
        return self.total * PAGE

    def can_hold(self, tokens: int) -> bool:
        """Whether a row of so many tokens can be opened now."""
        return self.promised + -(-tokens // PAGE) <= self.total

    def open(self, tokens: int) -> Row:
        """A row that may grow to ``tokens``; its pages are promised, so it never fails half way."""
        row = Row(-(-tokens // PAGE))
        self.promised += row.reserved
        return row

    def close(self, row: Row) -> None:
        """Give the row's pages back; idempotent."""
        self.promised -= row.reserved
        row.reserved = 0
        self._free += row.pages
        row.pages = []
        row.length = 0

    def begin(self, rows: Sequence[Row], width: int) -> Step:
        """Room for ``width`` more tokens in each row, and the cache object to hand to the model for this forward."""
        for row in rows:
            need = -(-(row.length + width) // PAGE)
            if need > row.reserved:
                raise RuntimeError(f"a row of {row.reserved} promised pages grows to {need}")
            while len(row.pages) < need:
                row.pages.append(self._free.pop() if self._free else self._new_page())
        return Step(self, rows, width)

    def _new_page(self) -> int:
        self._made += 1
        return self._made - 1

    def storage(self, layer: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of ``layer``: [pages, page, heads, dim], grown to hold every page made so far."""
        while len(self._keys) <= layer:
            empty = like.new_zeros((0, PAGE, like.shape[1], like.shape[3]))
            self._keys.append(empty)
            self._values.append(empty)
        have = self._keys[layer].shape[0]
        if have < self._made:
            size = min(self.total, max(self._made, 2 * have, 8))
            for store in (self._keys, self._values):
                old = store[layer]
                # Zeros, not empty: masked places are multiplied by zero, which does not make garbage harmless.
                store[layer] = torch.cat([old, old.new_zeros((size - have, *old.shape[1:]))])
        return self._keys[layer], self._values[layer]


class Step:
    """transformers' cache protocol for one forward over some rows, all ``width`` tokens wide."""

    def __init__(self, cache: PagedCache, rows: Sequence[Row], width: int) -> None:
        device = cache.place.device
        self._cache = cache
        self._rows = rows
        self._width = width
        pages = max(len(row.pages) for row in rows)
        table = [row.pages + [row.pages[0]] * (pages - len(row.pages)) for row in rows]
        starts = torch.tensor([row.length for row in rows])
        at = starts[:, None] + torch.arange(width)
        held = torch.tensor(table)
        self._table = held.to(device)
        self._page = held.gather(1, at // PAGE).to(device)
        self._offset = (at % PAGE).to(device)
        # A token sees itself and what its own row holds before it.
        self.mask = (torch.arange(pages * PAGE)[None, None, None, :] <= at[:, None, :, None]).to(device)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store [rows, heads, width, dim]; return all that each row holds, padded: [rows, heads, places, dim]."""
        both = []
        for store, new in zip(self._cache.storage(layer_idx, keys), (keys, values), strict=True):
            store[self._page, self._offset] = new.transpose(1, 2)
            held = store[self._table].flatten(1, 2)
            both.append(held.transpose(1, 2))
        return both[0], both[1]

    def finish(self) -> None:
        """The forward has run: the rows are longer now."""
        for row in self._rows:
            row.length += self._width
