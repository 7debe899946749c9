"""What this server can do and is allowed to do in a session: given once, by the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from antiphon.codecs.pictures import size_in_uri
from antiphon.pipelines.info import PictureLimits
from antiphon.session.request import Call, CallOutput, Clip, Entry, Heard, Image, Message, Text

UNKNOWN_PICTURE = 256
"""Tokens."""
Estimate = Callable[[Entry], int]
"""About how many tokens of the model's context an entry takes."""


def rough_tokens(entry: Entry, pictures: PictureLimits | None = None, speech: int = 10) -> int:
    """Four bytes of text or two of JSON to a token, ``speech`` tokens to a second, and four for the turn's own frame.

    Bytes, since a token is a word's piece in Latin script and hardly more than a character in others: Qwen's tokenizer makes
    0.6 tokens of a Chinese character, 0.7 of a Japanese one, 0.4 of a Cyrillic one. A picture is counted by its size, where it
    is known what that means to the model.
    """
    if isinstance(entry, Call):
        return 4 + _size(entry.name + entry.arguments) // 2
    if isinstance(entry, CallOutput):
        return 4 + _size(entry.output) // 2
    return 4 + sum(_part(part, pictures, speech) for part in entry.parts) if isinstance(entry, Message) else 4


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _part(part: Text | Heard | Clip | Image, pictures: PictureLimits | None, speech: int) -> int:
    match part:
        case Text(text):
            return _size(text) // 4
        case Heard((start, end)):
            return (end - start) * speech // 16_000
        case Clip(audio, (kind, rate)):
            return len(audio) * 3 // 4 // (2 if kind == "audio/pcm" else 1) * speech // rate
        case Image(url):
            size = size_in_uri(url) if pictures else None
            return pictures.tokens(size) if pictures and size else UNKNOWN_PICTURE


@dataclass(frozen=True, slots=True)
class Features:
    """Switches and figures of one session.

    ``outputs``: modalities the pipeline can make; ``inputs``: what it can read ("text", "audio", "image").
    ``early``: answer before the turn is certainly over (off for a model that costs money or has effects).
    ``eager_transcript``: start the transcript then. ``partials``: transcript while the user speaks, asked each
    ``partial_every_s``. ``prepare``: have the next answer's context read before it is needed.
    ``window_s``: how far audio may be sent ahead of what is heard; ``inf`` sends everything at once.
    ``min_interruption_ms``: speech it takes to cut an answer (0: what it takes to be speech at all).
    ``resume_after_false_interruption``: an answer cut by something that turned out to be no speech goes on.
    ``min_speech_ms``: a turn with less voice than this is no turn: it is not answered.
    ``context_tokens``: of one request in all. ``conversation_tokens``: of that, what follows the instructions and tools (so
    long ones leave it room); the oldest turns go first. 0 means unbounded.
    ``kept_audio_s``: user speech kept as audio; older turns become their text.
    """

    outputs: tuple[str, ...] = ("audio", "text")
    inputs: tuple[str, ...] = ("text", "audio", "image")
    early: bool = True
    eager_transcript: bool = True
    partials: bool = False
    partial_every_s: float = 1.0
    prepare: bool = False
    window_s: float = 4.0
    transport: Literal["websocket", "webrtc"] = "websocket"
    min_interruption_ms: int = 0
    resume_after_false_interruption: bool = False
    min_speech_ms: int = 96
    max_seconds: float = 3600.0
    context_tokens: int = 0
    conversation_tokens: int = 0
    estimate: Estimate = rough_tokens
    kept_audio_s: float = 300.0
