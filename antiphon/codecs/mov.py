"""How large an index FFmpeg will make of an MP4 or QuickTime file, told before it does.

It makes an entry of some 70 bytes for each sample that the file's tables claim, when the file is opened; and a table of
samples that are all of one size claims any number of them in twenty bytes, a list of edits as many again in twelve each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

MOST_ENTRIES: Final = 2_000_000
"""An hour of the shortest sounds that are coded apart (2.5 ms), and 140 MB."""
_UNCOUNTABLE: Final = 1 << 40
_TOGETHER: Final = 1024
"""Uncoded sound is taken in pieces of so many samples of a chunk."""
_CHUNK_RUNS: Final = 100_000
_OF_SOUND: Final = (b"soun", b"alis", b"url ", b"rsrc")
"""Handlers in a track of sound: its own, and those of where its data are."""


def index_entries(data: bytes) -> int:
    """At most so many entries, of all tracks and fragments. What is no such file has none."""
    return sum(_of_tables(box) for box in _headers(data))


def _headers(data: bytes) -> Iterator[bytes]:
    """The boxes at the top of the file that are not its samples; from where their sizes make no sense, all the rest."""
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if size == 1 and at + 16 <= len(data):
            (size,) = struct.unpack_from(">Q", data, at + 8)
        if size < 8:
            size = len(data) - at
        if kind != b"mdat":
            yield data[at : at + size]
        at += size


def _of_tables(box: bytes) -> int:
    if b"cmov" in box:  # a compressed header: what it claims could only be seen by unpacking it
        return _UNCOUNTABLE
    fragments = sum(_u32(box, at + 8) for at in _places(box, b"trun"))
    return fragments + sum(_of_track(track) for track in box.split(b"trak")[1:])


def _of_track(track: bytes) -> int:
    claimed = sum(_u32(track, at + 12) for name in (b"stsz", b"stz2") for at in _places(track, name))
    if claimed > MOST_ENTRIES and _uncoded_sound(track):
        claimed = _of_chunks(track)
    edits = max((_u32(track, at + 8) for at in _places(track, b"elst")), default=1)
    return claimed * max(1, edits)  # each may show all of the track again


def _uncoded_sound(track: bytes) -> bool:
    """FFmpeg's own rule: sound of which every sample lasts one unit of its clock."""
    handlers = [track[at + 12 : at + 16] for at in _places(track, b"hdlr")]
    times = list(_places(track, b"stts"))
    if b"soun" not in handlers or any(handler not in _OF_SOUND for handler in handlers) or len(times) != 1:
        return False
    return _u32(track, times[0] + 8) == 1 and _u32(track, times[0] + 16) == 1


def _of_chunks(track: bytes) -> int:
    runs = list(_places(track, b"stsc"))
    chunks = [_u32(track, at + 8) for name in (b"stco", b"co64") for at in _places(track, name)]
    if len(runs) != 1 or len(chunks) != 1 or (count := _u32(track, runs[0] + 8)) > _CHUNK_RUNS:
        return _UNCOUNTABLE
    table = [(_u32(track, at), _u32(track, at + 4)) for at in range(runs[0] + 12, runs[0] + 12 + 12 * count, 12)]
    ends = [first for first, _ in table[1:]] + [chunks[0] + 1]
    return sum(max(0, end - first) * -(-samples // _TOGETHER) for (first, samples), end in zip(table, ends, strict=True))


def _places(box: bytes, name: bytes) -> Iterator[int]:
    at = box.find(name)
    while at >= 0:
        yield at
        at = box.find(name, at + 4)


def _u32(box: bytes, at: int) -> int:
    return int.from_bytes(box[at : at + 4], "big")
