"""What a running pipeline can do, for doors to tell and to refuse by name."""

from __future__ import annotations

from typing import Literal

import msgspec

Task = Literal["chat", "speech", "transcription"]


class PipelineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``terminals``/``inputs`` by task: ``terminals["chat"] == ("text", "audio")``, ``inputs["chat"] == ("text", "audio")``.

    ``context_tokens``: of one request at most. ``conversation_tokens``: what a conversation keeps of it at most, beside its
    instructions and tools, where reading a full context anew would be too slow to wait for; 0: all of it.
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
    conversation_tokens: int = 0
    notes: tuple[str, ...] = ()
