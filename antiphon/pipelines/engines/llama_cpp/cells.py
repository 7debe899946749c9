"""What lies in the KV cache: our own books, in front of every sequence call.

An assert in the C library ends the process, so it is never asked to do what these books do not allow. Pure data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Slot:
    """One sequence of the context: its tokens, and the cell of each. ``owner`` is a conversation or "" for none."""

    seq: int
    tokens: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    owner: str = ""
    busy: bool = False
    pinned: bool = False
    used: int = 0
    """When it was last used: a counter, not a clock."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    n = min(len(a), len(b))
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n


class Cells:
    """The unified KV cache of ``size`` cells shared by ``sequences`` sequences.

    A cell belongs to every sequence that was copied from its own; it is free when the last one dropped it.
    """

    def __init__(self, size: int, sequences: int) -> None:
        self.size = size
        self.slots: list[Slot] = []
        self.ghosts: list[Slot] = []
        """Sequences that nobody needs any more and that are not removed yet: their ids and cells are still taken."""
        self._spare = list(reversed(range(sequences)))
        self._holders: dict[int, int] = {}
        self._next_cell = 0
        self._tick = 0

    @property
    def free(self) -> int:
        return self.size - len(self._holders)

    def take(self) -> Slot | None:
        """A new empty sequence, or None when every id is in use."""
        if not self._spare:
            return None
        slot = Slot(self._spare.pop(), busy=True)
        self.slots.append(slot)
        self.touch(slot)
        return slot

    def touch(self, slot: Slot) -> None:
        self._tick += 1
        slot.used = self._tick

    def append(self, slot: Slot, tokens: Iterable[int]) -> None:
        """These tokens were decoded into the sequence. The caller has checked ``free``."""
        for token in tokens:
            self._holders[self._next_cell] = 1
            slot.tokens.append(token)
            slot.cells.append(self._next_cell)
            self._next_cell += 1

    def copy(self, source: Slot, target: Slot, length: int) -> None:
        """The empty ``target`` shares the first ``length`` cells of ``source``."""
        target.tokens = source.tokens[:length]
        target.cells = source.cells[:length]
        for cell in target.cells:
            self._holders[cell] += 1

    def truncate(self, slot: Slot, length: int) -> None:
        for cell in slot.cells[length:]:
            self._holders[cell] -= 1
            if not self._holders[cell]:
                del self._holders[cell]
        del slot.cells[length:], slot.tokens[length:]

    def drop(self, slot: Slot) -> None:
        """Give its cells and its id back."""
        self.retire(slot)
        self.release(slot)

    def retire(self, slot: Slot) -> None:
        """It becomes a ghost."""
        self.slots.remove(slot)
        self.ghosts.append(slot)

    def release(self, ghost: Slot) -> None:
        """The ghost was removed from the cache: its cells and its id are free."""
        self.truncate(ghost, 0)
        self.ghosts.remove(ghost)
        self._spare.append(ghost.seq)

    def coldest(self) -> Slot | None:
        """The idle sequence that was used longest ago; None when all are busy or pinned."""
        idle = [s for s in self.slots if not s.busy and not s.pinned]
        return min(idle, key=lambda s: s.used) if idle else None

    def of(self, owner: str) -> list[Slot]:
        return [s for s in self.slots if s.owner == owner] if owner else []

    def longest(self, prompt: Sequence[int]) -> tuple[Slot | None, int]:
        """The sequence that shares the longest prefix with ``prompt``, busy or not, and that length."""
        best, length = None, 0
        for slot in self.slots:
            n = common_prefix(slot.tokens, prompt)
            if n > length:
                best, length = slot, n
        return best, length
