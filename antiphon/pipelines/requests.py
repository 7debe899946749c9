"""What a door asks of a pipeline. Plain frozen data, msgpack-able, comparable: two equal requests ask for the same.

Audio in a request is bytes and a format name, decoded by the preprocessing stage, never at the door.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antiphon.pipelines.stage import Kind, Listener

PCM_F32_16K = "f32_16k"
"""The one raw format of ``AudioPart``: float32 little endian, mono, 16 kHz (what the realtime shell keeps)."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


class AudioPart(msgspec.Struct, frozen=True, tag="audio"):
    """``format``: ``f32_16k``, or a container name or hint ("wav", "mp3", "" for: look). ``key`` identifies the content.
    ``name``, here and below: what its client calls it, for errors."""

    data: bytes
    format: str = ""
    key: str = ""
    transcript: str | None = None
    name: str = ""


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    data: bytes = b""
    url: str = ""
    detail: str = "auto"
    key: str = ""
    name: str = ""


class VideoPart(msgspec.Struct, frozen=True, tag="video"):
    data: bytes = b""
    url: str = ""
    key: str = ""
    name: str = ""


Medium = AudioPart | ImagePart | VideoPart
Part = TextPart | Medium


class ToolCall(msgspec.Struct, frozen=True):
    """A call an assistant made; ``arguments`` is a JSON string."""

    call_id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """One turn. ``calls``: of an assistant; ``call_id``: which call a tool message answers."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Tool(msgspec.Struct, frozen=True):
    """A function; ``parameters`` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolChoice(msgspec.Struct, frozen=True):
    """``function`` forces the one named ``name``."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str = ""


class Sampling(msgspec.Struct, frozen=True):
    """None means: the model's own default. ``max_tokens`` None: as many as the context allows."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repetition_penalty: float | None = None

    def changed(self, over: Sampling) -> Sampling:
        """This, with what ``over`` says."""
        return msgspec.structs.replace(self, **over.said())

    def said(self) -> dict[str, Any]:
        """The fields that are not left to the model."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value not in (None, ())}


class Voice(msgspec.Struct, frozen=True):
    """``name`` "default" is the first voice; ``speed`` 0.25..4; ``language`` is ISO 639-1 or "" for the voice's own."""

    name: str = "default"
    speed: float = 1.0
    language: str = ""


class Transcription(msgspec.Struct, frozen=True):
    """How speech is to be read. ``language`` "" = detect; ``prompt``/``keywords`` bias the recogniser."""

    language: str = ""
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    words: bool = False
    translate: bool = False
    temperature: float = 0.0


class ResponseFormat(msgspec.Struct, frozen=True):
    """``schema`` is used with ``json_schema`` only."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: dict[str, Any] = {}


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to ``Client.generate``.

    ``task`` chat: answer ``messages``; speech: say ``text``; transcription: read ``audio``.
    ``terminals``: which outputs are wanted ("text", "audio", "transcript", or others that the pipeline declares); of a
    ``prepare`` request, which the answer to come will want: a prompt for speech is not that for text.
    """

    id: str
    task: Literal["chat", "speech", "transcription"]
    terminals: tuple[str, ...]
    messages: tuple[Message, ...] = ()
    text: str = ""
    audio: AudioPart | None = None
    conversation: str = ""
    kind: Kind = "generate"
    listener: Listener = "confirmed"
    sampling: Sampling = Sampling()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = ResponseFormat()
    voice: Voice = Voice()
    transcription: Transcription = Transcription()
    stage_params: dict[str, dict[str, Any]] = {}
    stage_sampling: dict[str, Sampling] = {}
    """Over ``sampling``, for one stage alone. (``sampling`` itself is the thinker's; its seed is everybody's.)"""

    @property
    def thinking(self) -> Sampling:
        """How the thinker chooses its tokens."""
        return self.sampling.changed(self.stage_sampling.get("thinker", Sampling()))

    def sampling_seed(self, stage: str) -> int | None:
        """The seed of the stage's own draws."""
        own = self.stage_sampling.get(stage, Sampling()).seed
        return self.sampling.seed if own is None else own
