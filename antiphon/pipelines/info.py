"""What a running pipeline can do, for doors to tell and to refuse by name."""

from __future__ import annotations

from typing import Literal

import msgspec

Task = Literal["chat", "speech", "transcription"]


class PipelineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``terminals``/``inputs`` by task: ``terminals["chat"] == ("text", "audio")``, ``inputs["chat"] == ("text", "audio")``.

    ``voices``: the first is "default". ``languages``: what the voice can speak, ISO 639-1. ``models``: role -> model id.
    ``notes``: what an operator must know ("not verified on a GPU").
    """

    name: str
    model: str
    models: dict[str, str] = {}
    terminals: dict[Task, tuple[str, ...]] = {}
    inputs: dict[Task, tuple[str, ...]] = {}
    voices: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    early_responses: bool = False
    context_tokens: int = 0
    notes: tuple[str, ...] = ()
