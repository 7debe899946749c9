"""What one request's media may cost, and how they are to be sampled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from antiphon.pipelines.errors import Refused

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Budget:
    """The server's limits. Pixels are counted before resizing, seconds and bytes before decoding.

    ``video_pixels``: of all frames that are decoded, chosen or not: a film's work (ten minutes of 1920 x 1080 at 60 a second).
    ``places``: of the prompt, for all media together: what cannot fit into the context is not decoded.
    """

    items: int = 16
    audio_bytes: int = 64 * MIB
    audio_seconds: float = 2400.0
    image_bytes: int = 32 * MIB
    image_pixels: int = 50_000_000
    video_bytes: int = 256 * MIB
    video_seconds: float = 600.0
    video_frame_pixels: int = 9_000_000
    video_decoded_frames: int = 40_000
    video_pixels: int = 75_000_000_000
    places: int = 32_768

    def check_places(self, places: int, what: str) -> None:
        """Raise Refused when one medium alone takes more than there are."""
        if places > self.places:
            raise Refused(
                f"{what}: takes {places} places of the prompt; the limit is {self.places}", code="invalid_media", param=what
            )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How videos are sampled and pictures are sized. Pixel bounds hold after resizing; None: the checkpoint's own.

    ``min_pixels`` and ``max_pixels`` are of images and frames alike, ``video_...`` of frames, over them. ``total_pixels`` is
    shared by the sampled frames of one video. Defaults are those of the family's published sampler.
    """

    video_fps: float = 2.0
    video_max_frames: int = 768
    min_pixels: int | None = None
    max_pixels: int | None = None
    video_min_pixels: int | None = None
    video_max_pixels: int | None = None
    total_pixels: int | None = None
    use_audio_in_video: bool = False

    def changed(self, given: dict[str, Any]) -> Sampling:
        """With what a request names; ``video_total_pixels`` is another name of ``total_pixels``. Raises Refused naming the
        parameter and its bounds."""
        for key, (low, high, kind) in _BOUNDS.items():
            value = given.get(key)
            if value is None:
                continue
            wrong = isinstance(value, bool) != (kind is bool) or not isinstance(value, kind)
            if wrong or not low <= value <= high:
                raise Refused(f"{key} must be between {low:.9g} and {high:.9g}, not {repr(value)[:64]}", param=key)
        named = {key: given[key] for key in _BOUNDS if given.get(key) is not None}
        if "video_total_pixels" in named:
            named["total_pixels"] = named.pop("video_total_pixels")
        return replace(self, **named)

    @property
    def key(self) -> str:
        """Part of a cache key: the same bytes sampled otherwise are another picture."""
        sizes = (self.min_pixels, self.max_pixels, self.video_min_pixels, self.video_max_pixels, self.total_pixels)
        return "/".join(map(str, (self.video_fps, self.video_max_frames, *sizes)))


_BOUNDS: dict[str, tuple[float, float, Any]] = {
    "video_fps": (0.1, 60.0, (int, float)),
    "video_max_frames": (2, 768, int),
    "min_pixels": (1024, 16_777_216, int),
    "max_pixels": (1024, 16_777_216, int),
    "video_min_pixels": (1024, 16_777_216, int),
    "video_max_pixels": (1024, 16_777_216, int),
    "total_pixels": (4096, 200_000_000, int),
    "video_total_pixels": (4096, 200_000_000, int),
    "use_audio_in_video": (0, 1, bool),
}
