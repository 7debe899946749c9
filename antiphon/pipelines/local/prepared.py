"""What the entry of the CPU voice hands on: the request, and its audio decoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.outputs import TranscriptResult
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, TextPart


class Clip(msgspec.Struct, frozen=True, tag="clip"):
    """Audio to be read: float32 mono 16 kHz. ``key`` names its content and was computed before decoding."""

    key: str
    pcm: NDArray[np.float32]


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """The Result of preprocessing. ``clips``: every AudioPart, in the order of the messages (or the one to transcribe)."""

    request: GenerateRequest
    clips: tuple[Clip, ...] = ()


class Transcripts(msgspec.Struct, frozen=True, tag="transcripts"):
    """The Result of the transcriber: one for each clip, in order."""

    results: tuple[TranscriptResult, ...] = ()


def content_key(part: AudioPart) -> str:
    """The part's own key, or a hash of its bytes."""
    return part.key or hashlib.sha256(part.data).hexdigest()[:32]


def last_transcript(data: Any) -> Any:
    """Projection for the "transcript" terminal: the last clip's TranscriptResult; deltas pass as they are."""
    if isinstance(data, Transcripts):
        return data.results[-1] if data.results else TranscriptResult("")
    return data


def merge_transcripts(request: Any, results: Mapping[str, Any]) -> GenerateRequest:
    """The Thinker's input: the request with every AudioPart replaced by what was heard in it."""
    prepared: Prepared = results["preprocessing"]
    body = prepared.request
    heard: Transcripts | None = results.get("transcriber")
    if heard is None:
        return body
    texts = iter(heard.results)
    messages = tuple(
        Message(
            m.role,
            tuple(TextPart(next(texts).text) if isinstance(p, AudioPart) else p for p in m.parts),
            m.calls,
            m.call_id,
        )
        for m in body.messages
    )
    return msgspec.structs.replace(body, messages=messages)
