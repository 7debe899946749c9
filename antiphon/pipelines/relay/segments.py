"""Slots of shared memory: pre-faulted files in the run folder, written by one process, each slot read by one other.

A segment is one file: a page of slot states, then slots of one size. A state is 0 (free) or the generation of what lies
there: the writer sets it, the reader clears it, each with one store of eight aligned bytes. So giving a slot back costs no
message, and a reader that died is handled by its writer alone (``reclaim``).
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.relay.content import Flat

log = logging.getLogger("antiphon.relay")

PAGE = 4096
CLASSES = ((1 << 17, 16), (1 << 20, 4), (1 << 22, 4), (1 << 24, 2), (1 << 26, 1))
"""Slot bytes, slots in a segment. A piece that is larger than the last travels inline."""
LIMIT_BYTES = 256 << 20
POPULATE = getattr(mmap, "MAP_POPULATE", 0)
SUFFIX = ".seg"


class Segment:
    """One mapped file. ``states`` and ``content`` live as long as anything looks into them."""

    __slots__ = ("_map", "content", "name", "slot_bytes", "states")

    def __init__(self, path: Path, *, create: tuple[int, int] | None = None) -> None:
        """``create``: slot bytes and slots of a new file. Raises OSError (no room, not there)."""
        self.name = path.name
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if create is not None:
                whole = PAGE + create[0] * create[1]
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, whole)  # no room is said here, not by a fault later
                else:
                    os.ftruncate(fd, whole)
            size = os.fstat(fd).st_size
            self._map = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | POPULATE)
        except OSError:
            if create is not None:
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        header = memoryview(self._map)[:PAGE].cast("Q")
        if create is not None:
            header[-1] = create[0]
        self.slot_bytes = int(header[-1])
        self.states = header
        self.content = np.frombuffer(self._map, np.uint8, offset=PAGE)

    @property
    def slots(self) -> int:
        return self.content.size // self.slot_bytes

    def slot(self, index: int) -> Flat:
        return self.content[index * self.slot_bytes : (index + 1) * self.slot_bytes]


class Pool:
    """The segments that this process writes. ``owner`` names them; any thread may take a slot."""

    def __init__(self, folder: Path, owner: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.owner = owner
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self.overflows = 0
        """Pieces that found no room and travelled inline."""
        self._lock = threading.Lock()
        self._segments: dict[int, list[Segment]] = {size: [] for size, _ in CLASSES}
        self._lent: dict[tuple[str, int], tuple[int, str]] = {}
        self._gone: set[str] = set()
        self._generations = itertools.count(1)
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """Make the first segments of the smaller classes, so that no first chunk pays for their pages."""
        with self._lock:
            for size, slots in CLASSES[:2]:
                self._grow(size, slots)

    def take(self, nbytes: int, reader: str) -> tuple[Segment, int, int] | None:
        """A segment, slot and generation lent to ``reader``; None when there is no room, or no reader any more. Never waits."""
        with self._lock:
            if reader in self._gone:
                return None
            for size, slots in CLASSES:
                if nbytes > size:
                    continue
                segments = self._segments[size]
                for segment in segments:
                    for index in range(segment.slots):
                        if not segment.states[index]:
                            return self._lend(segment, index, reader)
                if self._grow(size, slots):
                    return self._lend(segments[-1], 0, reader)
                break
            self.overflows += 1
            return None

    def _lend(self, segment: Segment, index: int, reader: str) -> tuple[Segment, int, int]:
        generation = next(self._generations)
        segment.states[index] = generation
        self._lent[segment.name, index] = (generation, reader)
        return segment, index, generation

    def _grow(self, size: int, slots: int) -> bool:
        whole = PAGE + size * slots
        if self.bytes + whole > self.limit_bytes:
            return False
        path = self.folder / f"{self.owner}-{next(self._numbers)}{SUFFIX}"
        try:
            segment = Segment(path, create=(size, slots))
        except OSError as error:
            log.warning("no shared memory (%s): large pieces travel inside messages", error)
            self.limit_bytes = self.bytes  # asked once
            return False
        self._segments[size].append(segment)
        self.bytes += whole
        return True

    def reclaim(self, reader: str) -> None:
        """The reader's process has ended: what was lent to it is free. Its name never comes again, so nothing is lent to it
        any more either, by a thread that has not heard of it yet."""
        with self._lock:
            self._gone.add(reader)
            for (name, index), (generation, lent_to) in list(self._lent.items()):
                if lent_to != reader:
                    continue
                del self._lent[name, index]
                for segment in itertools.chain.from_iterable(self._segments.values()):
                    if segment.name == name and segment.states[index] == generation:
                        segment.states[index] = 0

    @property
    def in_use(self) -> int:
        """Slots that a reader holds."""
        with self._lock:
            segments = list(itertools.chain.from_iterable(self._segments.values()))
            return sum(1 for s in segments for index in range(s.slots) if s.states[index])


class Lease:
    """A slot that a reader holds; the array over it keeps it, and it gives the slot back when the array goes."""

    __slots__ = ("__array_interface__", "_generation", "_index", "_segment")

    def __init__(self, segment: Segment, index: int, generation: int, nbytes: int) -> None:
        self._segment = segment
        self._index = index
        self._generation = generation
        address = segment.content.__array_interface__["data"][0] + index * segment.slot_bytes
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False), "strides": None,
        }  # fmt: skip

    def __del__(self) -> None:
        give_back(self._segment, self._index, self._generation)


def give_back(segment: Segment, index: int, generation: int) -> None:
    if segment.states[index] == generation:
        segment.states[index] = 0


class Attached:
    """The segments of other processes that this one reads, mapped when first named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segments: dict[str, Segment] = {}

    def find(self, key: tuple[str, int, int]) -> Segment:
        """Raises WireError for what is not there, is no slot, or was given back already."""
        name, index, generation = key
        segment = self._segments.get(name)
        if segment is None:
            if not name.endswith(SUFFIX) or "/" in name or name.startswith("."):
                raise WireError("a reference names no segment")
            try:
                segment = self._segments[name] = Segment(self.folder / name)
            except (OSError, ValueError) as error:
                raise WireError("a reference names a segment that is gone") from error
        if not 0 <= index < segment.slots or segment.states[index] != generation:
            raise WireError("a reference is late: its slot was given back")
        return segment

    def lease(self, key: tuple[str, int, int], nbytes: int) -> Flat:
        """The slot's first ``nbytes``, as this reader's own until the array goes."""
        segment = self.find(key)
        if not 0 <= nbytes <= segment.slot_bytes:
            raise WireError("a reference is larger than its slot")
        return np.asarray(Lease(segment, key[1], key[2], nbytes))

    def forget(self, owner: str) -> None:
        """The owner has ended; mappings that something still looks into stay until it does not."""
        for name in [n for n in self._segments if n.startswith(f"{owner}-")]:
            del self._segments[name]
