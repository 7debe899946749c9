"""The books of the KV cache against a naive model: every sequence a list, cells as sets."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.engines.llama_cpp.cells import Cells, common_prefix


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_cells_are_counted_as_sets_of_holders(seed: int) -> None:
    dice = random.Random(seed)
    cells = Cells(size=60, sequences=5)
    naive: dict[int, list[object]] = {}  # seq -> the identity of each cell
    for _ in range(60):
        slot = dice.choice(cells.slots) if cells.slots else None
        match dice.randrange(6):
            case 0:
                taken = cells.take()
                assert (taken is None) == (len(naive) == 5)
                if taken is not None:
                    assert taken.seq not in naive, "an id in use was given out"
                    naive[taken.seq] = []
            case 1 if slot is not None:
                count = min(dice.randrange(4), cells.free)
                cells.append(slot, [dice.randrange(3) for _ in range(count)])
                naive[slot.seq] += [object() for _ in range(count)]
            case 2 if slot is not None and (target := cells.take()) is not None:
                length = dice.randrange(len(slot.tokens) + 1)
                cells.copy(slot, target, length)
                naive[target.seq] = naive[slot.seq][:length]
                assert target.tokens == slot.tokens[:length]
            case 3 if slot is not None:
                length = dice.randrange(len(slot.tokens) + 1)
                cells.truncate(slot, length)
                del naive[slot.seq][length:]
            case 4 if slot is not None:
                cells.drop(slot)
                del naive[slot.seq]
            case 5 if slot is not None:
                cells.retire(slot)
                assert slot not in cells.slots
                if dice.random() < 0.8:
                    cells.release(slot)
                    del naive[slot.seq]
        assert cells.free == 60 - len({c for held in naive.values() for c in held})
        assert {s.seq: len(s.tokens) for s in cells.slots + cells.ghosts} == {q: len(h) for q, h in naive.items()}


def test_the_coldest_is_neither_busy_nor_pinned() -> None:
    cells = Cells(10, 4)
    first, second, third = (cells.take() for _ in range(3))
    assert first and second and third
    first.busy, second.busy, third.busy = False, False, True
    second.pinned = True
    assert cells.coldest() is first
    first.busy = True
    assert cells.coldest() is None


def test_the_longest_prefix_is_found_among_all() -> None:
    cells = Cells(30, 3)
    for tokens in ([1, 2, 3, 9], [1, 2, 3, 4, 5], [7]):
        slot = cells.take()
        assert slot
        cells.append(slot, tokens)
    slot, length = cells.longest([1, 2, 3, 4, 6])
    assert slot is cells.slots[1] and length == 4
    assert cells.longest([8]) == (None, 0)
    assert common_prefix([], [1]) == 0
