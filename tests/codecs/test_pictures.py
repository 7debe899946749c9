"""Sizes out of headers, held against Pillow, which decodes them."""

from __future__ import annotations

import base64
import io
import random
from typing import Any

import pytest

from antiphon.codecs import pictures
from antiphon.codecs.errors import NotPicture

Image = pytest.importorskip("PIL.Image", reason="the omni extra is not installed")
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("PNG", {}),
    ("JPEG", {}),
    ("JPEG", {"progressive": True, "exif": b"Exif\0\0" + bytes(9000), "icc_profile": bytes(20_000)}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True}),
    ("WEBP", {"save_all": True, "append_images": [Image.new("RGB", (37, 211), "red")]}),
    ("GIF", {}),
    ("BMP", {}),
    ("TIFF", {}),
    ("TIFF", {"big_tiff": True}),
]
MAGIC = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF____WEBPVP8 ", b"RIFF____WEBPVP8L", b"RIFF____WEBPVP8X", b"GIF89a"]
MAGIC += [b"BM", b"II*\0", b"MM\0*"]


def encoded(format: str, size: tuple[int, int], **options: Any) -> bytes:
    held = io.BytesIO()
    Image.new("RGB", size).save(held, format, **options)
    return held.getvalue()


@pytest.mark.parametrize(("format", "options"), KINDS, ids=lambda value: value if isinstance(value, str) else ",".join(value))
def test_every_format_s_header_is_read(format: str, options: dict[str, Any]) -> None:
    for size in ((37, 211), (300, 2)) if "append_images" not in options else ((37, 211),):
        data = encoded(format, size, **options)
        expected = None if "big_tiff" in options else size
        assert pictures.size_of(data) == expected
        assert pictures.size_in_uri("data:image/x;base64," + base64.b64encode(data).decode()) == expected


@pytest.mark.parametrize("data", [b"", b"hello", b"<svg/>", b"%PDF-1.7", b"RIFF____WAVE", b"\0\0\0\x1cftypavif", b"\xff\xd8"])
def test_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(NotPicture, match=r"is no readable image \(PNG, JPEG, WEBP, GIF, BMP, TIFF\)"):
        pictures.size_of(data)
    assert pictures.size_in_uri("data:image/png;base64," + base64.b64encode(data).decode()) is None


def test_a_damaged_header_tells_nothing_and_breaks_nothing() -> None:
    rng = random.Random(1)
    for magic in MAGIC:
        for _ in range(300):
            pictures.size_of(magic + rng.randbytes(rng.randint(0, 120)))
        for fill in (b"\xff", b"\xe0\x00\x00\xff", b"\0"):  # segments without end, without length
            pictures.size_of(magic + fill * 3_000_000)


def test_limits_are_told_by_their_numbers() -> None:
    assert pictures.beyond((10_000, 5_000), 50_000_000) == ""
    assert pictures.beyond((10_000, 5_001), 50_000_000) == "is 10000 x 5001 pixels; the limit is 50000000 in all"
    assert pictures.beyond((200, 1), 1000) == "" and "at most 200 times the other" in pictures.beyond((201, 1), 1000)
    assert "at most 200 times" in pictures.misshapen((0, 0))
