"""What a running pipeline can do, for doors to tell and to refuse by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from antiphon.codecs import pictures
from antiphon.codecs.errors import NotPicture

Task = Literal["chat", "speech", "transcription"]


class PictureLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one picture may have, and what it takes of the context.

    ``max_bytes`` and ``max_pixels`` as it is sent; ``least`` to ``most`` pixels as the model sees it, ``place`` of them for a
    token; ``max_tokens``.
    """

    max_bytes: int
    max_pixels: int
    max_tokens: int
    least: int
    most: int
    place: int

    def tokens(self, size: pictures.Size) -> int:
        """About how many, with what stands around them."""
        return max(min(size[0] * size[1], self.most), self.least) // self.place + 2

    def refusal(self, data: bytes) -> str:
        """Why no answer can be made of it, as far as its header tells, in words fit for a client; "" when one can."""
        if len(data) > self.max_bytes:
            return f"has {len(data)} bytes; the limit is {self.max_bytes}"
        try:
            size = pictures.size_of(data)
        except NotPicture as error:
            return str(error)
        if size is None:
            return ""
        if (why := pictures.beyond(size, self.max_pixels)) or self.tokens(size) - 2 <= self.max_tokens:
            return why
        return f"takes {self.tokens(size) - 2} places of the prompt; the limit is {self.max_tokens}"


class PipelineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``terminals``/``inputs`` by task: ``terminals["chat"] == ("text", "audio")``, ``inputs["chat"] == ("text", "audio")``.

    ``context_tokens``: of one request at most. ``conversation_tokens``: what a conversation keeps of it at most, beside its
    instructions and tools, where reading a full context anew would be too slow to wait for; 0: all of it.
    ``speech_tokens``: what a second of speech takes of the context. ``pictures``: the limits of those that it reads, if known.
    ``voices``: the first is "default"; ``paced``: they speak at the pace asked for. ``languages``: what the voice can speak,
    ISO 639-1. ``models``: role -> model id.
    ``notes``: what an operator must know ("not verified on a GPU").
    """

    name: str
    model: str
    models: dict[str, str] = {}
    terminals: dict[Task, tuple[str, ...]] = {}
    inputs: dict[Task, tuple[str, ...]] = {}
    voices: tuple[str, ...] = ()
    paced: bool = True
    languages: tuple[str, ...] = ()
    early_responses: bool = False
    context_tokens: int = 0
    conversation_tokens: int = 0
    speech_tokens: int = 10
    pictures: PictureLimits | None = None
    notes: tuple[str, ...] = ()

    def voice(self, name: str) -> str:
        """How this pipeline spells the voice of that name, in whatever case it is written; "" when it has none."""
        return spelled(name, self.voices)


def spelled(name: str, voices: Iterable[str]) -> str:
    """The one of these voices that is meant, in whatever case it is written; "" for none of them."""
    return next((voice for voice in voices if voice.lower() == name.lower()), "")
