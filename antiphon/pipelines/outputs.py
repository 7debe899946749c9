"""What the usual terminals send: "text", "audio", "transcript". Frozen, msgpack-able (arrays by the relay's hook)."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

AUDIO_RATE = 24_000
"""Samples per second of every "audio" terminal; mono float32 in [-1, 1]."""


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """A chunk of "text": whole Unicode characters. ``tokens`` made since the last delta."""

    text: str
    tokens: int = 1


class CallDelta(msgspec.Struct, frozen=True, tag="call_delta"):
    """A chunk of "text": a piece of a tool call's JSON ``arguments``. ``name`` is whole from the first piece on.

    ``last``: the call is complete and may be made; one that a token limit cut off has no last piece."""

    index: int
    call_id: str
    name: str
    arguments: str
    last: bool = False
    tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Token counts by the model's own tokenizer; ``cached_tokens`` of the prompt were not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prompt_audio_tokens: int = 0
    prompt_image_tokens: int = 0


class TextResult(msgspec.Struct, frozen=True, tag="text_result"):
    """The Result of "text"."""

    finish_reason: Literal["stop", "length", "tool_calls"] = "stop"
    usage: Usage = Usage()


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """At ``sample`` of the answer's audio (24 kHz, from its start) the voice has said ``text[:text_offset]``."""

    sample: int
    text_offset: int


class AudioDelta(msgspec.Struct, frozen=True, tag="audio_delta"):
    """A chunk of "audio": float32 [n], and the marks that fall in it.

    Offsets count characters of the Thinker's own text (all ``TextDelta.text`` joined, or ``GenerateRequest.text``).
    ``exact``: from the model's durations; else proportional, rounded down to a word.
    """

    pcm: NDArray[np.float32]
    marks: tuple[Mark, ...] = ()
    exact: bool = True


class AudioResult(msgspec.Struct, frozen=True, tag="audio_result"):
    """The Result of "audio": how many samples were sent in all."""

    samples: int = 0


class Word(msgspec.Struct, frozen=True):
    word: str
    start: float
    end: float


class Segment(msgspec.Struct, frozen=True):
    """Times in seconds from the start of the audio."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    avg_logprob: float = 0.0
    no_speech_prob: float = 0.0
    compression_ratio: float = 1.0
    temperature: float = 0.0
    seek: int = 0


class TranscriptDelta(msgspec.Struct, frozen=True, tag="transcript_delta"):
    """A chunk of "transcript": text that will not be taken back."""

    text: str


class TranscriptResult(msgspec.Struct, frozen=True, tag="transcript_result"):
    """The Result of "transcript". ``language`` is ISO 639-1, ``duration`` in seconds of audio."""

    text: str
    language: str = ""
    duration: float = 0.0
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
