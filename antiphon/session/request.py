"""What a conversation asks the graph for: a frozen value, without ids, without bytes.

Two equal requests ask for the same answer: that is the key of an early response. So the user's speech stands in it as a
span of input samples and never as its transcript (a late transcript changes nothing), and nothing in it is an id that
was drawn for this one try.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Span = tuple[int, int]
"""Input samples [start, end) at 16 kHz, counted from the first sample of the session."""

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """What the user said: samples that an item owns, or (in an early request) will own."""

    span: Span


@dataclass(frozen=True, slots=True)
class Clip:
    """Audio that a client put into an item: base64 as it came, in the input format of that moment.

    ``format`` is ("audio/pcm", 24000 | 16000), ("audio/pcmu", 8000) or ("audio/pcma", 8000). ``transcript`` is the
    client's own, if it gave one.
    """

    audio: str
    format: tuple[str, int]
    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """``url`` is a data URI or an address; the shell decides which it serves."""

    url: str
    detail: str = "auto"


Part = Text | Heard | Clip | Image


@dataclass(frozen=True, slots=True)
class Message:
    """``name``: what the client calls it, for errors. It is no part of what is asked: the item of an early answer's speech has
    no id yet."""

    role: Role
    parts: tuple[Part, ...]
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A call the model made; ``arguments`` is a JSON string."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallOutput:
    call_id: str
    output: str


Entry = Message | Call | CallOutput


def standing(instructions: str, tools: str) -> tuple[Entry, ...]:
    """What is read before any conversation, as entries: the instructions, and the tools, whose JSON counts like a call's."""
    return (Message("system", (Text(instructions),)), *([CallOutput("", tools)] if tools != "[]" else []))


@dataclass(frozen=True, slots=True)
class Recognition:
    """How speech is to be read. ``language`` ISO 639-1 or "" (detect); ``prompt`` and ``keywords`` bias the recogniser.

    ``model`` is the name the client gave, for the record only.
    """

    language: str = ""
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One answer. ``tools`` is canonical JSON of the GA list; ``tool_choice`` canonical JSON of the GA value.

    ``modality`` audio means: text and audio. ``max_tokens`` None: as many as the context allows. ``temperature`` None:
    the model's own.
    """

    instructions: str
    context: tuple[Entry, ...]
    modality: Literal["audio", "text"]
    tools: str = "[]"
    tool_choice: str = '"auto"'
    parallel_tool_calls: bool = True
    voice: str = ""
    speed: float = 1.0
    max_tokens: int | None = None
    temperature: float | None = None
    recognition: Recognition = field(default_factory=Recognition)
