"""The three relays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.relay.content import flatten, restore
from antiphon.pipelines.relay.ref import BYTES, Ref
from antiphon.pipelines.relay.segments import Attached, Pool, give_back


class ByReference:
    """Within one process: the object itself, which nobody changes any more."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}
        self._numbers = itertools.count(1)

    def put(self, value: Any) -> Ref:
        dtype, shape, flat = flatten(value)
        number = next(self._numbers)
        self._held[number] = value
        return Ref("reference", dtype, shape, flat.size, ("", number, 0))

    def get(self, ref: Ref) -> Any:
        try:
            return self._held.pop(ref.key[1])
        except KeyError:
            raise WireError("a reference is late: it was given back") from None

    def release(self, ref: Ref) -> None:
        self._held.pop(ref.key[1], None)


class Inline:
    """Inside the message. Nothing to give back; a ref holds its own bytes."""

    def put(self, value: Any) -> Ref:
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":  # most of what is small: without the detour
            data = value.tobytes()
            return Ref("inline", value.dtype.str, value.shape, len(data), data=data)
        dtype, shape, flat = flatten(value)
        return Ref("inline", dtype, shape, flat.size, data=flat.tobytes())

    def get(self, ref: Ref) -> Any:
        if ref.dtype == BYTES:
            return ref.data
        return restore(ref.dtype, ref.shape, np.frombuffer(bytearray(ref.data), np.uint8))

    def release(self, ref: Ref) -> None: ...


class Shared:
    """Through slots of ``pool`` to the process ``reader``; inline where no slot is free, so that nobody ever waits."""

    def __init__(self, pool: Pool, reader: str, attached: Attached) -> None:
        self._pool = pool
        self._reader = reader
        self._attached = attached
        self._inline = Inline()

    def put(self, value: Any) -> Ref:
        dtype, shape, flat = flatten(value)
        slot = self._pool.take(flat.size, self._reader) if flat.size else None
        if slot is None:
            return self._inline.put(value)
        segment, index, generation = slot
        segment.slot(index)[: flat.size] = flat
        return Ref("shared", dtype, shape, flat.size, (segment.name, index, generation))

    def get(self, ref: Ref) -> Any:
        return got(ref, self._attached)

    def release(self, ref: Ref) -> None:
        if ref.kind == "shared":
            try:
                segment = self._attached.find(ref.key)
            except WireError:
                return
            give_back(segment, ref.key[1], ref.key[2])


def got(ref: Ref, attached: Attached) -> Any:
    """What a ref from another process stands for: a view of its slot that gives the slot back when it goes."""
    if ref.kind == "inline":
        return Inline().get(ref)
    if ref.kind != "shared":
        raise WireError("an object of another process cannot be got by reference")
    return restore(ref.dtype, ref.shape, attached.lease(ref.key, ref.nbytes))
