"""Films of every kind: turned, uneven in time, of odd sizes."""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from antiphon.pipelines.qwen3_omni.media import pictures, video
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.qwen3_omni.preprocessing import Preprocessing
from antiphon.pipelines.requests import VideoPart
from tests.qwen3_omni.test_media import prepare, request


def filmed(frames: int, size: tuple[int, int], times: tuple[int, ...] = ()) -> bytes:
    """A film whose upper left quarter is white; ``times``: of its frames, in ms."""
    held = io.BytesIO()
    width, height = size
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2, : width // 2] = 255
    with av.open(held, "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.codec_context.options = {"tune": "zerolatency"}
        for i in range(frames):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = (times or range(0, 100 * frames, 100))[i], Fraction(1, 1000)
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return held.getvalue()


def turned(mp4: bytes, a: int, b: int, c: int, d: int) -> bytes:
    """The same file with this matrix in its track's header (ISO 14496-12, tkhd): x' = a x + c y, y' = b x + d y."""
    one = 0x10000
    plain = struct.pack(">9i", one, 0, 0, 0, one, 0, 0, 0, 0x40000000)
    at = mp4.index(plain, mp4.index(b"tkhd"))
    return mp4[:at] + struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 0x40000000) + mp4[at + 36 :]


@pytest.mark.parametrize(
    ("matrix", "size", "corner"),
    [
        ((1, 0, 0, 1), (64, 96), (0, 0)),
        ((0, 1, -1, 0), (96, 64), (0, 1)),  # a quarter clockwise: the upper left goes to the upper right
        ((-1, 0, 0, -1), (64, 96), (1, 1)),
        ((0, -1, 1, 0), (96, 64), (1, 0)),
    ],
)
def test_films_stand_upright(matrix: Any, size: tuple[int, int], corner: tuple[int, int], folder: str) -> None:
    sampling = Sampling(min_pixels=1024, max_pixels=6144)
    film_ = turned(filmed(4, (96, 64)), *matrix)
    frame = np.asarray(video.read_frames(film_, sampling, pictures.Patcher(folder), Budget(), "v").frames[0])
    assert frame.shape[:2] == size
    quarters = frame.reshape(2, size[0] // 2, 2, size[1] // 2, 3).mean(axis=(1, 3, 4))
    assert quarters[corner] > 200 and np.delete(quarters.ravel(), corner[0] * 2 + corner[1]).max() < 60


def test_frames_of_uneven_length_are_all_counted(folder: str) -> None:
    """Six frames in three seconds, most of them in the first half second: sampled by number, as the family does."""
    film_ = filmed(6, (96, 64), (0, 10, 500, 510, 3000, 3010))
    read = video.read_frames(film_, Sampling(video_fps=60.0, min_pixels=1024), pictures.Patcher(folder), Budget(), "v")
    assert len(read.frames) == 6 and read.seconds_per_grid > 0


@pytest.mark.parametrize("size", [(66, 34), (2, 2), (2, 400)])
def test_odd_sizes_of_films(size: tuple[int, int], folder: str) -> None:
    made = prepare(folder, request(VideoPart(filmed(1, size)), max_pixels=4096, min_pixels=1024))
    assert made.videos[0].grid[0] == 1


@pytest.mark.parametrize(("context", "places"), [(4096, 3072), (2560, 1920), (1 << 20, 3072)])
def test_a_film_is_sized_for_the_context(context: int, places: int, folder: str) -> None:
    """Where a request sets no size: three quarters of the context, which is the model's 4096 at most. By the published rule
    alone each of eight steps of time could have 768 places."""
    entry = Preprocessing(folder, context=context)
    size = entry.patcher.video_size(1920, 1080, 16, entry.sampling)
    assert places * 0.9 < entry.patcher.places(size, 8) <= places
