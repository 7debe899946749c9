"""What the header of a picture says: which format it is of, and its size. No pixel is decoded, no library is needed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from antiphon.codecs import base64
from antiphon.codecs.errors import BadBase64, NotPicture

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_ASPECT: Final = 200
Size = tuple[int, int]
"""(width, height) in pixels, as stored."""

_HEADS: Final = (16 << 10, 1 << 20)
"""Bytes of a picture that are looked at for its size: most say it at once, some behind a profile and a small copy."""
_STEPS: Final = 1000
"""Segments or entries of one header; a picture has some dozens, a hostile file millions."""


def size_of(data: bytes) -> Size | None:
    """None when it is of a known format, but where its size should be is something else, or nothing yet.

    Raises ``NotPicture`` for what begins like none of ``FORMATS``.
    """
    for magic, at, read in _READERS:
        if data.startswith(magic, at):
            try:
                return read(data)
            except (struct.error, IndexError):
                return None
    raise NotPicture(f"is no readable image ({', '.join(FORMATS)})")


def size_in_uri(uri: str) -> Size | None:
    """Of the picture in a base64 data URI, from its first bytes; None where these do not tell it."""
    begin = uri.find(",") + 1
    for head in _HEADS:
        try:
            size = size_of(base64.decode(uri[begin : begin + head // 3 * 4]))
        except (BadBase64, NotPicture):
            return None
        if size is not None:
            return size
    return None


def beyond(size: Size, max_pixels: int) -> str:
    """Which limit such a picture is past, in words fit for a client; "" when it is past none."""
    width, height = size
    if width * height > max_pixels:
        return f"is {width} x {height} pixels; the limit is {max_pixels} in all"
    return misshapen(size)


def misshapen(size: Size) -> str:
    """The same of its shape alone."""
    if min(size) < 1 or max(size) > MAX_ASPECT * min(size):
        return f"is {size[0]} x {size[1]}: one side may be at most {MAX_ASPECT} times the other"
    return ""


def _png(data: bytes) -> Size | None:
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height) if data[12:16] == b"IHDR" else None


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> Size:
    """A negative height: its lines go from the top down."""
    old = struct.unpack_from("<I", data, 14)[0] == 12
    width, height = struct.unpack_from("<HH" if old else "<ii", data, 18)
    return width, abs(height)


def _webp(data: bytes) -> Size | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8X":
            _, wide, high = struct.unpack_from("<I3s3s", data, 20)
            return 1 + int.from_bytes(wide, "little"), 1 + int.from_bytes(high, "little")
    return None


def _jpeg(data: bytes) -> Size | None:
    """From segment to segment up to the frame's own."""
    at = 2
    for _ in range(_STEPS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _tiff(data: bytes) -> Size | None:
    """Of the first picture in it: tags 256 and 257, short or long."""
    order = "<" if data[:2] == b"II" else ">"
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    found: dict[int, int] = {}
    for entry in range(at + 2, at + 2 + 12 * min(count, _STEPS), 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, entry)
        if tag in (256, 257) and kind in (3, 4):
            (found[tag],) = struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", data, entry + 8)
    return (found[256], found[257]) if len(found) == 2 else None


def _untold(data: bytes) -> None:
    """Rare kinds whose size only a decoder looks for."""
    return None


_READERS: Final[tuple[tuple[bytes, int, Callable[[bytes], Size | None]], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, _png),
    (b"\xff\xd8\xff", 0, _jpeg),
    (b"WEBP", 8, _webp),
    (b"GIF87a", 0, _gif),
    (b"GIF89a", 0, _gif),
    (b"BM", 0, _bmp),
    (b"II*\0", 0, _tiff),
    (b"MM\0*", 0, _tiff),
    *((magic, 0, _untold) for magic in (b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")),
)
