"""The entry of the CPU voice: decode the audio of a request once, off the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from antiphon.codecs import media
from antiphon.codecs.errors import CodecError
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.prepared import Clip, Prepared, content_key
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest
from antiphon.pipelines.stage import Emit, Inputs, Request, Stage

EAR_RATE = 16_000
MAX_CLIP_S = 1800.0
"""The longest audio of one request: half an hour."""
MAX_CLIP_BYTES = 64 << 20


@dataclass
class Preparing:
    body: GenerateRequest


def audio_parts(body: GenerateRequest) -> list[AudioPart]:
    """What has to be heard before the request can be answered, in order."""
    if body.task == "transcription":
        return [body.audio] if body.audio is not None else []
    return [part for message in body.messages for part in message.parts if isinstance(part, AudioPart)]


def decode(part: AudioPart) -> Clip:
    """Raises Refused naming what is wrong with the audio and the limit."""
    key = content_key(part)
    if part.format == PCM_F32_16K:
        if len(part.data) % 4:
            raise Refused("the audio is not whole float32 samples", code="invalid_audio", param="audio")
        return Clip(key, np.frombuffer(part.data, np.dtype("<f4")))
    try:
        pcm = media.decode(part.data, EAR_RATE, format=part.format, max_seconds=MAX_CLIP_S, max_bytes=MAX_CLIP_BYTES)
    except CodecError as error:
        text = f"{part.name}: {error}" if part.name else str(error)
        raise Refused(text, code="invalid_audio", param=part.name or "audio") from error
    return Clip(key, pcm)


class Preprocessing(Stage[Preparing]):
    """One-shot: GenerateRequest -> Prepared. A step decodes one request."""

    def open(self, request: Request, inputs: Inputs) -> Preparing:
        return Preparing(inputs)

    def step(self, batch: Sequence[Preparing], emit: Emit) -> None:
        for task in batch:
            try:
                clips = tuple(decode(part) for part in audio_parts(task.body))
            except Refused as refused:
                emit.failure(task, refused)
                continue
            emit.result(task, Prepared(task.body, clips))
