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
from antiphon.pipelines.errors import WeightError

PAGE = 32
"""Tokens in a page."""


def pages(tokens: int) -> int:
    """Pages for so many tokens."""
    return -(-tokens // PAGE)


class Row:
    """One sequence's pages. ``length`` tokens are cached; it may grow to ``reserved`` pages."""

    __slots__ = ("length", "pages", "reserved")

    def __init__(self, reserved: int) -> None:
        self.length = 0
        self.pages: list[int] = []
        self.reserved = reserved


class PagedCache:
    """Pages for ``tokens`` tokens in all. On a CPU storage grows as it is used, to that bound; on a device it is taken whole
    at the first forward (the warm-up), so that what was counted before loading is there when it is needed.

    Rows that begin alike may hold the same pages: a whole page is never written again, so sharing it is safe.
    """

    def __init__(self, tokens: int, place: Place) -> None:
        self.total = pages(tokens)
        self.place = place
        self._free: list[int] = []
        self._made = 0
        self._holders: list[int] = []
        """How many rows hold each page."""
        self._growth = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    @property
    def tokens(self) -> int:
        return self.total * PAGE

    @property
    def promised(self) -> int:
        """Pages that are held, and those that open rows may still ask for."""
        return self._made - len(self._free) + self._growth

    def can_hold(self, tokens: int, shared: int = 0) -> bool:
        """Whether a row of so many tokens can be opened now; ``shared`` pages of it are held already."""
        return self.promised + pages(tokens) - shared <= self.total

    def open(self, tokens: int, begins: Sequence[int] = ()) -> Row:
        """A row that may grow to ``tokens``; its pages are promised, so it never fails half way.

        ``begins``: whole pages of another row that it begins with.
        """
        row = Row(pages(tokens))
        row.pages = list(begins)
        row.length = len(begins) * PAGE
        for page in begins:
            self._holders[page] += 1
        self._growth += row.reserved - len(row.pages)
        return row

    def settle(self, row: Row) -> None:
        """The row will not grow any more: what it did not use of its promise is given back."""
        self._growth -= row.reserved - len(row.pages)
        row.reserved = len(row.pages)

    def cut(self, row: Row, tokens: int) -> None:
        """Of the row only the whole pages of its first ``tokens`` are left; it will not grow any more."""
        self.settle(row)
        left = min(tokens, row.length) // PAGE
        for page in row.pages[left:]:
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)
        del row.pages[left:]
        row.reserved, row.length = left, left * PAGE

    def close(self, row: Row) -> None:
        """Give the row's pages back; idempotent."""
        self.cut(row, 0)

    def holders(self, page: int) -> int:
        """How many rows hold the page."""
        return self._holders[page]

    def begin(self, rows: Sequence[Row], width: int) -> Step:
        """Room for ``width`` more tokens in each row, and the cache object to hand to the model for this forward."""
        stored = min((store.shape[0] for store in (*self._keys, *self._values)), default=0)
        used: list[int] = []
        for row in rows:
            need = pages(row.length + width)
            if need > row.reserved:
                raise RuntimeError(f"a row of {row.reserved} promised pages grows to {need}")
            while len(row.pages) < need:
                row.pages.append(self._take_page())
                if row.pages[-1] < stored:
                    used.append(row.pages[-1])
        self._wipe(used)
        return Step(self, rows, width)

    def _wipe(self, used: Sequence[int]) -> None:
        """What another row left in these pages goes: its numbers may be none, and what is masked is multiplied all the same."""
        if not used:
            return
        index = torch.tensor(used).to(self.place.device)
        for store in (*self._keys, *self._values):
            store.index_fill_(0, index, 0)

    def _take_page(self) -> int:
        self._growth -= 1
        if self._free:
            page = self._free.pop()
        else:
            page = self._made
            self._made += 1
            self._holders.append(0)
        self._holders[page] = 1
        return page

    def storage(self, layer: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of ``layer``: [pages, page, heads, dim], grown to hold every page made so far."""
        while len(self._keys) <= layer:
            empty = like.new_zeros((0, PAGE, like.shape[1], like.shape[3]))
            self._keys.append(empty)
            self._values.append(empty)
        have = self._keys[layer].shape[0]
        if have < self._made:
            size = min(self.total, max(self._made, 2 * have, 8)) if like.device.type == "cpu" else self.total
            try:
                # Zeros, not empty: masked places are multiplied by zero, which does not make garbage harmless. Both or none:
                # where memory is short for a moment, values shorter than their keys would fail every later step.
                keys, values = (_grown(store[layer], size) for store in (self._keys, self._values))
            except torch.OutOfMemoryError as error:
                raise WeightError(
                    f"a KV cache of {self.tokens} tokens does not fit beside the weights on {self.place.device}: "
                    "fewer kv_tokens are needed"
                ) from error
            self._keys[layer], self._values[layer] = keys, values
        return self._keys[layer], self._values[layer]


def _grown(store: torch.Tensor, size: int) -> torch.Tensor:
    """The store with zeros behind it, ``size`` pages in all."""
    return torch.cat([store, store.new_zeros((size - store.shape[0], *store.shape[1:]))])


class Step:
    """transformers' cache protocol for one forward over some rows, all ``width`` tokens wide."""

    def __init__(self, cache: PagedCache, rows: Sequence[Row], width: int) -> None:
        device = cache.place.device
        self._cache = cache
        self._rows = rows
        self._width = width
        width_pages = max(len(row.pages) for row in rows)
        table = [row.pages + [row.pages[0]] * (width_pages - len(row.pages)) for row in rows]
        starts = torch.tensor([row.length for row in rows])
        at = starts[:, None] + torch.arange(width)
        held = torch.tensor(table)
        self._table = held.to(device)
        self._page = held.gather(1, at // PAGE).to(device)
        self._offset = (at % PAGE).to(device)
        # A token sees itself and what its own row holds before it.
        self.mask = (torch.arange(width_pages * PAGE)[None, None, None, :] <= at[:, None, :, None]).to(device)

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
