"""What travels between this family's stages: frozen, msgpack-able, numpy only, so that any stage may be a process.

Shapes: P tokens of prompt, H the thinker's hidden size. Features travel as float32 whatever the stages compute in.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.local.prepared import Prepared as Clips
from antiphon.pipelines.outputs import CallDelta

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


class Speech(msgspec.Struct, frozen=True):
    """One audio: log-mel ``mel`` [bins, frames] at 100 frames a second. ``key`` names its content for the caches.

    ``mel`` is None where only the length matters.
    """

    mel: Floats | None
    frames: int
    key: str


class Patches(msgspec.Struct, frozen=True):
    """One image or video: ``grid`` (time, rows, columns) of patches, ``pixels`` [patches, channels * 2 * patch * patch].

    ``pixels`` is None where only the grid matters.
    """

    grid: tuple[int, int, int]
    key: str
    pixels: Floats | None = None


class Prepared(msgspec.Struct, frozen=True):
    """The prompt with its placeholders expanded, and the media behind them, each kind in prompt order.

    ``seconds_per_grid``: for each video, the seconds that one step of its time axis covers.
    ``audio_in_video``: the videos' sound tracks stand interleaved with their frames.
    """

    ids: Ids
    speech: tuple[Speech, ...] = ()
    images: tuple[Patches, ...] = ()
    videos: tuple[Patches, ...] = ()
    seconds_per_grid: tuple[float, ...] = ()
    audio_in_video: bool = False
    clips: Clips | None = None
    """What a transcriber reads, when a transcript is wanted."""


class Heard(msgspec.Struct, frozen=True):
    """Audio encoder: one [tokens, H] for each ``Prepared.speech``."""

    features: tuple[Floats, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """Image encoder: for images and for videos, [tokens, H] each and the deepstack levels, [tokens, H] each."""

    images: tuple[tuple[Floats, ...], ...] = ()
    videos: tuple[tuple[Floats, ...], ...] = ()


class Layout(msgspec.Struct, frozen=True):
    """Where the media lie, for whoever has to number positions: grids, seconds, mel frames. No features."""

    image_grids: tuple[tuple[int, int, int], ...] = ()
    video_grids: tuple[tuple[int, int, int], ...] = ()
    seconds_per_grid: tuple[float, ...] = ()
    audio_frames: tuple[int, ...] = ()
    audio_in_video: bool = False


class ThinkerInput(msgspec.Struct, frozen=True):
    """``positions`` [3, P] (time, height, width); ``delta`` is what a position is ahead of its index after the prompt.

    ``names`` [P]: an id for text, a number of the content at media places: equal names, equal content.
    ``audio`` [audio places, H], ``visual`` [image and video places in prompt order, H], ``deepstack``: levels of the same.
    """

    ids: Ids
    names: Ids
    positions: Floats
    delta: float
    layout: Layout = Layout()
    audio: Floats | None = None
    visual: Floats | None = None
    deepstack: tuple[Floats, ...] = ()


class Prompt(msgspec.Struct, frozen=True):
    """What the Talker must know of the prompt: its ids, and the accepted layer's states at media places [places, H].

    The rows of text are the embedding of their ids, so a Thinker that cannot show its states still makes text speak.
    """

    ids: Ids
    layout: Layout = Layout()
    media: Floats | None = None


class Said(msgspec.Struct, frozen=True, tag="said"):
    """A Thinker's chunk: one token that is spoken and shown. The first one carries the prompt (when audio is wanted).

    Preprocessing says a text that is only to be spoken in the same way.
    """

    token: int
    prompt: Prompt | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A Thinker's last chunk. The terminal token is never spoken; ``shown`` is its text, where it has any to show."""

    reason: Literal["stop", "length", "tool_calls"]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0
    token: int = -1
    shown: str = ""


ThinkerChunk = Said | CallDelta | Finished
"""A piece of a tool call is shown and never spoken."""


class Frame(msgspec.Struct, frozen=True):
    """A Talker's chunk: the codes of 80 ms, and the text token that went into it (-1: none was left)."""

    codes: tuple[int, ...]
    token: int = -1


class Spoken(msgspec.Struct, frozen=True):
    """The Talker's Result. ``reason`` "length": the speech hit its limit of frames."""

    frames: int
    reason: Literal["stop", "length"] = "stop"


def without_media(prepared: Prepared) -> Prepared:
    """The projection for readers that need only the prompt and where its media lie."""
    return Prepared(
        prepared.ids,
        tuple(Speech(None, s.frames, s.key) for s in prepared.speech),
        tuple(Patches(p.grid, p.key) for p in prepared.images),
        tuple(Patches(p.grid, p.key) for p in prepared.videos),
        prepared.seconds_per_grid,
        prepared.audio_in_video,
    )


def speech_only(prepared: Prepared) -> tuple[Speech, ...]:
    """The projection for the audio encoder."""
    return prepared.speech


def clips_only(prepared: Prepared) -> Clips | None:
    """The projection for the transcriber."""
    return prepared.clips


def pictures_only(prepared: Prepared) -> tuple[tuple[Patches, ...], tuple[Patches, ...]]:
    """The projection for the image encoder: images, videos."""
    return prepared.images, prepared.videos


def without_prompt(chunk: ThinkerChunk) -> ThinkerChunk:
    """The projection for readers that need no prompt."""
    return Said(chunk.token) if isinstance(chunk, Said) else chunk
