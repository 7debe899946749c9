"""Images and sampled video frames to patches, by the family's rules of sizing and the checkpoint's own normalisation."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from antiphon.codecs.pictures import FORMATS, beyond, misshapen
from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.qwen3_omni.payloads import Floats, Patches

BROKEN = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError),
    *(RuntimeError, SyntaxError, TypeError, ValueError, struct.error),
)
"""What Pillow raises on a damaged file: each format's reader has its own way, and none promises one exception."""
SCAN = b"\xff\xda"
"""Begins a scan of a JPEG, which in a hundred bytes is a pass over all its pixels. In its other data they are mere chance."""
MOST_SCANS = 20
"""Of a picture of the most pixels; a progressive one has ten."""
_UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF's orientation -> what turns such a picture upright."""
TEMPORAL = 2
"""Frames in one step of the time axis."""
VIDEO_MIN_PIXELS = 128
VIDEO_MAX_PIXELS = 768
VIDEO_TOTAL_PIXELS = 128_000 * 0.9
"""The published video sampler's bounds, in places of (patch * merge)^2 pixels."""


def open_image(data: bytes, budget: Budget, what: str) -> Image.Image:
    """RGB, upright, on white where it is transparent, as the family's own loader has it. The size is read from the header and
    checked before a pixel is decoded. Raises Refused."""
    if len(data) > budget.image_bytes:
        raise _refused(what, f"has {len(data)} bytes; the limit is {budget.image_bytes}")
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        if why := beyond(image.size, budget.image_pixels):
            raise _refused(what, why)
        if image.format in ("JPEG", "MPO"):
            _check_scans(data.count(SCAN), image, budget, what)
        image.load()
        turn = _turn(image)
        seen = _rgb(image)
        return seen if turn is None else seen.transpose(turn)
    except Image.DecompressionBombError as error:  # Pillow's own bound, far above ours
        raise _refused(what, f"has more pixels than the limit of {budget.image_pixels}") from error
    except BROKEN as error:
        raise _refused(what, f"is no readable image ({', '.join(FORMATS)})") from error


def _check_scans(scans: int, image: Image.Image, budget: Budget, what: str) -> None:
    most = MOST_SCANS * budget.image_pixels
    if scans * image.width * image.height > most:
        raise _refused(
            what, f"has {scans} scans of {image.width} x {image.height} pixels to decode; the limit is {most} pixels in all"
        )


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):  # Pillow cuts 16 bits of grey off at 255: all but the darkest would be white
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    drawn = image.convert("RGBA")  # under what is transparent most files hold black: black letters would stand on it
    seen = Image.new("RGB", image.size, "white")
    seen.paste(drawn, mask=drawn)
    return seen


def _turn(image: Image.Image) -> Image.Transpose | None:
    """A picture whose EXIF is damaged stands as it was stored."""
    try:
        return _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation))
    except BROKEN:
        return None


def check_shape(width: int, height: int, what: str) -> None:
    if why := misshapen((width, height)):
        raise _refused(what, why)


class Patcher:
    """Pictures to patches for one checkpoint (its preprocessor_config.json)."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / "preprocessor_config.json"
        try:
            held = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise WeightError(f"{str(folder)!r} holds no readable {path.name}") from error
        try:
            size = held.get("size") or {}
            self.patch = int(held.get("patch_size", 16))
            self.merge = int(held.get("merge_size", 2))
            self.least = int(held.get("min_pixels") or size.get("shortest_edge") or 4 * self.factor**2)
            self.most = int(held.get("max_pixels") or size.get("longest_edge") or 16384 * self.factor**2)
            frames = int(held.get("temporal_patch_size", TEMPORAL))
            self.mean = np.array(held.get("image_mean", (0.5, 0.5, 0.5)), np.float32)
            self.std = np.array(held.get("image_std", (0.5, 0.5, 0.5)), np.float32)
        except (AttributeError, TypeError, ValueError) as error:
            raise WeightError(f"{path.name} is not one of an image processor: {error}") from error
        if frames != TEMPORAL:
            raise WeightError(f"{path.name}: only a temporal_patch_size of {TEMPORAL} is supported")
        if min(self.patch, self.merge) < 1 or self.mean.shape != (3,) or self.std.shape != (3,) or not self.std.all():
            raise WeightError(f"{path.name}: its patches or its normalisation are none that a picture can have")

    @property
    def factor(self) -> int:
        return self.patch * self.merge

    def places(self, size: tuple[int, int], steps: int) -> int:
        """Of the prompt, for ``steps`` of time at ``size``."""
        return steps * size[0] * size[1] // self.factor**2

    def image(self, image: Image.Image, sampling: Sampling, key: str, budget: Budget, what: str) -> Patches:
        """One picture: both frames of its single step of time are the same. Raises Refused naming ``what``."""
        least = sampling.min_pixels or self.least
        size = fitted(image.width, image.height, self.factor, least, max(sampling.max_pixels or self.most, least))
        budget.check_places(self.places(size, 1), what)
        pixels, grid = self.patches([_resized(image, size)] * TEMPORAL)
        return Patches(grid, key, pixels)

    def video_size(self, width: int, height: int, frames: int, sampling: Sampling) -> tuple[int, int]:
        """(width, height) of each of ``frames`` sampled frames, by the published sampler's shared budget."""
        unit = self.factor**2
        least = sampling.video_min_pixels or sampling.min_pixels or VIDEO_MIN_PIXELS * unit
        total = sampling.total_pixels or VIDEO_TOTAL_PIXELS * unit
        most = max(min(VIDEO_MAX_PIXELS * unit, total / frames * TEMPORAL), int(least * 1.05))
        if (bound := sampling.video_max_pixels or sampling.max_pixels) is not None:
            most = max(min(bound, most), least)
        return fitted(width, height, self.factor, least, int(most), floor=self.factor)

    def video(self, frames: Sequence[Image.Image], key: str) -> Patches:
        """Frames already at their size, an even number of them."""
        pixels, grid = self.patches(frames)
        return Patches(grid, key, pixels)

    def patches(self, frames: Sequence[Image.Image]) -> tuple[Floats, tuple[int, int, int]]:
        """[time * rows * columns, channels * 2 * patch * patch], in blocks of merge x merge patches, and the grid."""
        p, m = self.patch, self.merge
        width, height = frames[0].size
        grid = (len(frames) // TEMPORAL, height // p, width // p)
        channels = len(self.mean)
        flat = np.empty((math.prod(grid), channels * TEMPORAL * p * p), np.float32)
        # time, block row, block column, row in block, column in block | channel, frame, y, x
        ordered = flat.reshape(grid[0], grid[1] // m, grid[2] // m, m, m, channels, TEMPORAL, p, p)
        for number, frame in enumerate(frames):  # one by one: all of them as floats would be as much again
            normal = np.array(frame, np.float32)
            normal *= np.float32(1 / 255)
            normal -= self.mean
            normal /= self.std
            cut = normal.reshape(grid[1] // m, m, p, grid[2] // m, m, p, channels)
            ordered[number // TEMPORAL, :, :, :, :, :, number % TEMPORAL] = cut.transpose(0, 3, 1, 4, 6, 2, 5)
        return flat, grid


def fitted(width: int, height: int, factor: int, least: int, most: int, *, floor: int = 0) -> tuple[int, int]:
    """(width, height), multiples of ``factor`` near the picture's shape, with ``least`` to ``most`` pixels.

    The rule is the family's ``smart_resize``. Its two writings differ at a side that rounds to nothing: transformers' image
    processor sizes such a picture up to ``least``, the video sampler takes that side as ``floor``.
    """
    w, h = (max(floor, round(side / factor) * factor) for side in (width, height))
    if w * h > most:
        scale = math.sqrt(width * height / most)
        w, h = (max(factor, math.floor(side / scale / factor) * factor) for side in (width, height))
    elif w * h < least:
        scale = math.sqrt(least / (width * height))
        w, h = (math.ceil(side * scale / factor) * factor for side in (width, height))
    return w, h


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


def to_image(frame: NDArray[Any], size: tuple[int, int]) -> Image.Image:
    """A decoded RGB frame [height, width, 3] uint8 at ``size``."""
    return _resized(Image.fromarray(frame), size)


def _refused(what: str, why: str) -> Refused:
    return Refused(f"{what}: {why}", code="invalid_media", param=what)
