"""Frames of a video file: counted without decoding, sampled by the family's published rule, decoded one by one with PyAV.

Only the chosen frames become pictures, and nothing after the last chosen one is decoded. torchvision is not needed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from antiphon.codecs import containers, mov
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.qwen3_omni.media.pictures import SCAN, TEMPORAL, Patcher, check_shape, to_image

MIN_FRAMES = 4
_READERS = {"mp4": "mov", "webm": "matroska", "avi": "avi"}


@dataclass(frozen=True, slots=True)
class Film:
    """Sampled frames, all of one size, an even number; ``seconds_per_grid`` of real time in each pair."""

    frames: tuple[Image.Image, ...]
    seconds_per_grid: float


def read_frames(
    data: bytes,
    sampling: Sampling,
    patcher: Patcher,
    budget: Budget,
    what: str,
    stop: Callable[[], bool] = lambda: False,
) -> Film:
    """Raises Refused naming ``what`` and the limit. ``stop`` is asked at every frame: then nobody wants the film any more."""
    if len(data) > budget.video_bytes:
        raise _refused(what, f"has {len(data)} bytes; the limit is {budget.video_bytes}")
    with _opened(data, what) as container:
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise _refused(what, "is coded in a way that is not known here")
        width, height = stream.codec_context.width, stream.codec_context.height
        if not width or not height:
            raise _no_frame(what, budget)
        if width * height > budget.video_frame_pixels:
            raise _refused(what, f"is {width} x {height} pixels a frame; the limit is {budget.video_frame_pixels} in all")
        check_shape(width, height, what)
        total, fps = _count(container, stream, budget, what)
        passes = max(total, data.count(SCAN)) if stream.codec_context.name == "mjpeg" else total
    if width * height * passes > budget.video_pixels:
        raise _refused(
            what,
            f"has {passes} frames of {width} x {height} pixels to decode; the limit is {budget.video_pixels} pixels in all",
        )
    indices = sampled(total, fps, sampling)
    with _decoding(data, what, budget) as container:
        turns = _quarter_turns(container)
    if turns % 2:
        width, height = height, width
    size = patcher.video_size(width, height, len(indices), sampling)
    budget.check_places(patcher.places(size, len(indices) // TEMPORAL), what)
    with _decoding(data, what, budget) as container:
        frames = [to_image(np.rot90(array, turns), size) for array in _pick(container, indices, stop)]
    if not frames:
        raise _no_frame(what, budget)
    frames += [frames[-1]] * (len(indices) - len(frames))  # a file that breaks off: its last picture stands
    seconds = total / fps
    return Film(tuple(frames), TEMPORAL * seconds / len(indices))


def sampled(total: int, fps: float, sampling: Sampling) -> list[int]:
    """Indices of the frames to take of ``total``, evenly spread, about ``video_fps`` a second and an even number.

    The family's published rule (qwen-omni-utils): at least 4 frames and at most ``video_max_frames`` where the film has
    them. A film of one frame is shown twice.
    """
    most = min(sampling.video_max_frames, total) // TEMPORAL * TEMPORAL
    wanted = min(max(total / fps * sampling.video_fps, MIN_FRAMES), most, total)
    count = max(TEMPORAL, math.floor(wanted / TEMPORAL) * TEMPORAL)
    return [round(float(i)) for i in np.linspace(0, total - 1, count)]


def _count(container: Any, stream: Any, budget: Budget, what: str) -> tuple[int, float]:
    """Frames in the stream and their rate, from its packets: nothing is decoded."""
    total, first, last = 0, math.inf, -math.inf
    for packet in container.demux(stream):
        if packet.pts is None or not packet.size:
            continue
        total += 1
        at = float(packet.pts * packet.time_base)
        first, last = min(first, at), max(last, at)
        if total > budget.video_decoded_frames:
            raise _refused(what, f"has more than {budget.video_decoded_frames} frames")
        if last - first > budget.video_seconds:
            raise _refused(what, f"is longer than the limit of {budget.video_seconds:g} seconds")
    if not total:
        raise _no_frame(what, budget)
    rate = float(stream.average_rate or 0)
    if not rate and total > 1 and last > first:
        rate = (total - 1) / (last - first)
    return total, rate or 1.0


def _quarter_turns(container: Any) -> int:
    """How often the film is turned by 90 degrees counterclockwise to stand upright: what a telephone held on its side
    writes beside its pictures."""
    import av

    try:
        first = next(container.decode(video=0), None)
    except av.error.FFmpegError:
        return 0  # whoever decodes all of it says so
    return 0 if first is None else round(first.rotation / 90) % 4


def _pick(container: Any, indices: list[int], stop: Callable[[], bool]) -> Iterator[Any]:
    """RGB arrays of the frames at ``indices`` (ascending; a repeated one is given again), until ``stop``."""
    import av

    left = list(indices)
    try:
        for number, frame in enumerate(container.decode(video=0)):
            while left and left[0] == number:
                left.pop(0)
                yield frame.to_ndarray(format="rgb24")
            if not left or stop():
                return
    except av.error.FFmpegError:
        return


@contextmanager
def _decoding(data: bytes, what: str, budget: Budget) -> Iterator[Any]:
    """Opened to be decoded: a frame larger than the file's header says, and than the limit, is damage to the decoder."""
    with _opened(data, what) as container:
        most = budget.video_frame_pixels * 5 // 4  # frames are coded in whole blocks, the container tells their own size
        container.streams.video[0].codec_context.options = {"max_pixels": str(most)}
        yield container


@contextmanager
def _opened(data: bytes, what: str) -> Iterator[Any]:
    try:
        import av
    except ImportError:
        raise _refused(what, "this server cannot read videos: PyAV is not installed (antiphon[omni])") from None
    kind = containers.sniff(data)
    if data[:4] == b"RIFF" and data[8:11] == b"AVI":
        kind = "avi"
    # Told by name, never left to guess: FFmpeg also opens playlists, and those name other files.
    reader = _READERS.get(kind)
    if reader is None:
        raise _refused(what, f"is no video container known here ({', '.join(_READERS)})")
    if kind == "mp4" and (entries := mov.index_entries(data)) > mov.MOST_ENTRIES:
        raise _refused(what, f"claims {entries} samples in its header; the limit is {mov.MOST_ENTRIES}")
    try:
        with av.open(io.BytesIO(data), format=reader, metadata_errors="ignore") as container:
            if not container.streams.video:
                raise _refused(what, "has no video stream")
            yield container
    except (av.error.FFmpegError, ValueError) as error:
        raise _refused(what, "cannot be decoded: it is damaged or not what its header says") from error


def _no_frame(what: str, budget: Budget) -> Refused:
    return _refused(what, f"holds no frame that can be decoded; the limit is {budget.video_frame_pixels} pixels a frame")


def _refused(what: str, why: str) -> Refused:
    return Refused(f"{what}: {why}", code="invalid_media", param=what)
