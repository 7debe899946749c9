"""What stands for a piece of data while it moves, and what every relay can do.

A relay moves one array, tensor or byte string from a sender to one reader. The three of them: ``reference`` (the same
process: the object itself), ``inline`` (inside the message), ``shared`` (a slot of shared memory: one copy in, none out).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

Kind = Literal["reference", "inline", "shared"]
KINDS: tuple[Kind, ...] = ("reference", "inline", "shared")
BYTES = "bytes"


class Ref(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One piece under way.

    ``dtype``: numpy's own string ("<f4"), "torch.bfloat16" and so on for tensors, "bytes". ``key``: where it lies (segment,
    slot, generation for shared memory; ("", number, 0) for a reference). ``data``: the bytes themselves, inline only.
    """

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    key: tuple[str, int, int] = ("", 0, 0)
    data: bytes = b""
    device: str = "cpu"


class Relay(Protocol):
    """``put`` and ``get`` are plain calls: a copy is the work itself, and a lane's thread is where it belongs.

    Every ref that was put is got or released once by its one reader; getting it a second time raises WireError.
    """

    def put(self, value: Any) -> Ref:
        """Raises WireError for what cannot travel (object arrays, tensors on a device)."""

    def get(self, ref: Ref) -> Any:
        """The piece, with its dtype and shape; writable and the reader's own."""

    def release(self, ref: Ref) -> None:
        """Give the place back unread. Idempotent."""
