"""``POST /v1/audio/speech``: a text is said, in any of six formats, its bytes sent as they are made.

Accepted and ignored: ``model`` (there is one voice pipeline), ``instructions``, unknown fields.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from antiphon.codecs import base64, encode
from antiphon.codecs.encode import CONTENT_TYPES, Encoder
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta
from antiphon.pipelines.requests import GenerateRequest
from antiphon.realtime.rest import voices
from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.rest.fields import free, invalid
from antiphon.realtime.rest.off_loop import encoded
from antiphon.realtime.rest.sampling import by_stage
from antiphon.realtime.rest.work import Work
from antiphon.realtime.state import State
from antiphon.session.response import AUDIO_TOKENS_PER_S

CHARS_PER_TOKEN = 4
"""No tokenizer takes part in speaking a given text: its input is counted as OpenAI's rule of thumb has it."""


class SpeechBody(msgspec.Struct):
    input: str
    voice: Any = "default"
    model: str | None = None
    response_format: str | None = None
    speed: float | None = None
    instructions: str | None = None
    stream_format: str | None = None
    language: str | None = None
    stage_params: dict[str, dict[str, Any]] | None = None
    stage_sampling: dict[str, Any] | None = None
    request_id: str | None = None


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/audio/speech", _speak, method="POST")]


async def _speak(call: Call) -> Response:
    body = await call.json(SpeechBody)
    call.name(body.request_id)
    info = call.require("speech", "audio")
    limit = call.state.settings.max_speech_chars
    if not body.input:
        raise invalid("input", "the text is empty", "string_too_short")
    if len(body.input) > limit:
        raise invalid("input", f"{len(body.input)} characters are more than the limit of {limit}", "string_above_max_length")
    format = body.response_format or "mp3"
    if format not in CONTENT_TYPES:
        raise invalid("response_format", f"{format[:64]!r} is not one of {', '.join(CONTENT_TYPES)}")
    if body.stream_format not in (None, "audio", "sse"):
        raise invalid("stream_format", f"{str(body.stream_format)[:64]!r} is not one of audio, sse")
    voice = voices.choose(info, body.voice, "voice", speed=body.speed, language=body.language or "")
    encoder = encode.encoder(format, AUDIO_RATE)
    request = GenerateRequest(
        id=call.id,
        task="speech",
        terminals=("audio",),
        text=body.input,
        voice=voice,
        stage_params=free(body.stage_params, "stage_params"),
        stage_sampling=by_stage(body.stage_sampling),
    )
    work = call.work(request)
    await call.unless_gone(work.begin())
    if body.stream_format == "sse":
        return call.live_events(_told(body, encoder, work), work, ends_with=b"")
    return call.live(_raw(encoder, work), work, encoder.content_type)


async def _raw(encoder: Encoder, work: Work) -> AsyncGenerator[bytes, None]:
    async for event in work:
        if isinstance(event.data, AudioDelta):
            yield await encoded(encoder, event.data.pcm)
    yield encoder.finish()


async def _told(body: SpeechBody, encoder: Encoder, work: Work) -> AsyncGenerator[dict[str, Any], None]:
    samples = 0
    async for event in work:
        if isinstance(event.data, AudioDelta):
            samples += len(event.data.pcm)
            if data := await encoded(encoder, event.data.pcm):
                yield {"type": "speech.audio.delta", "audio": base64.encode(data)}
    if data := encoder.finish():
        yield {"type": "speech.audio.delta", "audio": base64.encode(data)}
    read = math.ceil(len(body.input) / CHARS_PER_TOKEN)
    said = math.ceil(samples * AUDIO_TOKENS_PER_S / AUDIO_RATE)
    usage = {"input_tokens": read, "output_tokens": said, "total_tokens": read + said}
    yield {"type": "speech.audio.done", "usage": usage}
