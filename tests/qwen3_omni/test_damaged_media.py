"""Media whose files lie or are damaged in the ways that decoders do not foresee: still the item's own fault, by its name."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable

import av
import numpy as np
import pytest
from PIL import Image

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media import pictures, video
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from tests.qwen3_omni.test_films import filmed

SAMPLING = Sampling(min_pixels=1024, max_pixels=6144)


def picture() -> Image.Image:
    """48 x 32, its left half white."""
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:, :24] = 255
    return Image.fromarray(pixels)


def saved(format: str, **options: object) -> bytes:
    held = io.BytesIO()
    picture().save(held, format, **options)
    return held.getvalue()


def exif(*fields: tuple[int, int, bytes]) -> bytes:
    """One directory of single values: (tag, type, value in 4 bytes), big-endian (TIFF 6.0)."""
    entries = b"".join(struct.pack(">HHI", tag, kind, 1) + value for tag, kind, value in fields)
    return b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(fields)) + entries + bytes(4)


def test_a_picture_stands_upright_whatever_else_its_exif_holds() -> None:
    """The camera's name as a number: no reader of pixels has to care."""
    turned_clockwise = (0x0112, 3, struct.pack(">HH", 6, 0))
    data = saved("JPEG", exif=exif((0x010F, 11, struct.pack(">f", 1.5)), turned_clockwise), quality=95)
    seen = np.asarray(pictures.open_image(data, Budget(), "it"))
    assert seen.shape == (48, 32, 3)
    assert seen[:20].min() > 200  # the left half has become the upper one
    assert seen[28:].max() < 50


def test_a_tiff_whose_directory_is_nonsense_is_no_readable_image() -> None:
    tiff = saved("TIFF")
    assert pictures.open_image(tiff, Budget(), "it").size == (48, 32)
    strips = struct.pack("<HHI", 273, 4, 1)  # StripOffsets, one LONG
    for kind in (2, 5, 12):  # as a text, a fraction, a double
        with pytest.raises(Refused, match="it: is no readable image"):
            pictures.open_image(tiff.replace(strips, struct.pack("<HHI", 273, kind, 1)), Budget(), "it")


def coded(size: tuple[int, int], codec: str) -> bytes:
    held = io.BytesIO()
    with av.open(held, "w", format="webm") as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for _ in range(4):
            for packet in stream.encode(av.VideoFrame(*size, "rgb24")):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return held.getvalue()


def test_frames_larger_than_the_header_says_are_not_decoded(folder: str) -> None:
    """The container says 64 x 48; each frame of VP8 says for itself how large it is."""
    honest = coded((640, 480), "libvpx")
    size = (b"\xb0\x82" + struct.pack(">H", 640), b"\xba\x82" + struct.pack(">H", 480))  # Matroska's PixelWidth, PixelHeight
    assert all(field in honest for field in size)
    lying = honest.replace(size[0], b"\xb0\x82\0\x40").replace(size[1], b"\xba\x82\0\x30")
    patcher = pictures.Patcher(folder)
    assert len(video.read_frames(honest, SAMPLING, patcher, Budget(), "it").frames) == 4
    with pytest.raises(Refused, match=r"it: holds no frame that can be decoded; the limit is 100000 pixels a frame"):
        video.read_frames(lying, SAMPLING, patcher, Budget(video_frame_pixels=100_000), "it")


def test_a_frame_of_the_largest_size_is_decoded(folder: str) -> None:
    """Coded frames are rounded up to whole blocks: that is no lie."""
    budget, patcher = Budget(video_frame_pixels=100_000), pictures.Patcher(folder)
    for film in (coded((500, 200), "libvpx-vp9"), filmed(4, (500, 200))):
        assert len(video.read_frames(film, SAMPLING, patcher, budget, "it").frames) == 4


def test_a_film_s_work_is_bounded(folder: str) -> None:
    """However few frames are chosen: those before them are decoded too."""
    film, patcher = filmed(40, (500, 200)), pictures.Patcher(folder)
    few = Sampling(video_max_frames=2, max_pixels=6144)
    assert len(video.read_frames(film, few, patcher, Budget(video_pixels=4_000_000), "it").frames) == 2
    with pytest.raises(Refused, match="it: has 40 frames of 500 x 200 pixels to decode; the limit is 3999999 pixels in all"):
        video.read_frames(film, few, patcher, Budget(video_pixels=3_999_999), "it")


def scanned(again: int) -> bytes:
    """A progressive JPEG of 600 x 500 whose last scan, of some dozen bytes, stands in it ``again`` times more."""
    held = io.BytesIO()
    Image.new("L", (600, 500)).save(held, "JPEG", progressive=True)
    data = held.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    assert len(last) < 200
    return data[:-2] + last * again + data[-2:]


def test_a_picture_s_passes_are_counted() -> None:
    """Some kilobytes that would be decoded for minutes: each scan is work for all pixels."""
    scans = scanned(0).count(b"\xff\xda")
    budget = Budget(image_pixels=600 * 500)
    assert 1 < scans <= 10
    assert pictures.open_image(scanned(20 - scans), budget, "it").size == (600, 500)
    with pytest.raises(Refused, match="it: has 21 scans of 600 x 500 pixels to decode; the limit is 6000000 pixels in all"):
        pictures.open_image(scanned(21 - scans), budget, "it")


def test_a_film_of_such_pictures_is_counted_alike(folder: str) -> None:
    """An AVI of them, made by hand: what writes films makes no scan twice."""
    frame = scanned(30)
    film = coded_avi(frame, (600, 500))
    patcher = pictures.Patcher(folder)
    assert len(video.read_frames(film, SAMPLING, patcher, Budget(), "it").frames) == 2
    scans = frame.count(b"\xff\xda")
    with pytest.raises(Refused, match=f"it: has {2 * scans} frames of 600 x 500 pixels to decode"):
        video.read_frames(film, SAMPLING, patcher, Budget(video_pixels=2 * scans * 600 * 500 - 1), "it")


def coded_avi(frame: bytes, size: tuple[int, int]) -> bytes:
    """Two of the same frame, as they are."""
    held = io.BytesIO()
    with av.open(held, "w", format="avi") as out:
        stream = out.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuvj420p"
        for at in range(2):
            packet = av.Packet(frame)
            packet.stream, packet.pts, packet.dts = stream, at, at
            out.mux(packet)
    return held.getvalue()


def test_a_film_that_claims_frames_without_end_is_not_opened(folder: str) -> None:
    """FFmpeg makes an index of them all at once: two gigabytes for these."""
    film = filmed(4, (64, 48))
    at = film.index(b"stsz") + 8
    claiming = film[:at] + struct.pack(">II", 5, 30_000_000) + film[at + 8 :]
    with pytest.raises(Refused, match="it: claims 30000000 samples in its header; the limit is 2000000"):
        video.read_frames(claiming, SAMPLING, pictures.Patcher(folder), Budget(), "it")


UNKNOWN: dict[str, Callable[[], bytes]] = {
    "mp4": lambda: filmed(4, (64, 48)).replace(b"avc1", b"zzzz"),
    "webm": lambda: coded((64, 48), "libvpx").replace(b"V_VP8", b"V_ZZZ"),
}


@pytest.mark.parametrize("container", list(UNKNOWN))
def test_a_coding_that_nobody_knows_is_said(container: str, folder: str) -> None:
    with pytest.raises(Refused, match="it: is coded in a way that is not known here"):
        video.read_frames(UNKNOWN[container](), SAMPLING, pictures.Patcher(folder), Budget(), "it")


def test_patches_take_little_more_memory_than_they_are(folder: str) -> None:
    """A long film's frames are a gigabyte as floats: they are not held twice."""
    frames = [Image.new("RGB", (256, 256))] * 32
    patcher = pictures.Patcher(folder)
    tracemalloc.start()
    try:
        made = patcher.video(frames, "film")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.pixels is not None
    assert made.pixels.nbytes == 32 * 256 * 256 * 3 * 4
    assert most < 1.25 * made.pixels.nbytes
