"""``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``.

Accepted and ignored: ``model``, ``chunking_strategy``, ``known_speaker_*``, unknown fields; ``stream`` where the format
has no stream (verbose_json, srt, vtt: answered in one piece, as whisper-1 does).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.outputs import TranscriptDelta, TranscriptResult
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Transcription
from antiphon.realtime.errors import TooBig
from antiphon.realtime.languages import code_of
from antiphon.realtime.rest import transcript_formats as formats
from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.rest.fields import invalid, missing
from antiphon.realtime.rest.json_answer import JsonAnswer
from antiphon.realtime.rest.media_parts import content_key
from antiphon.realtime.rest.work import Work
from antiphon.realtime.state import State

STREAMED = ("json", "text")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


def routes(state: State) -> list[BaseRoute]:
    async def transcribe(call: Call) -> Response:
        return await _read_out(call, translate=False)

    async def translate(call: Call) -> Response:
        return await _read_out(call, translate=True)

    return [
        *route(state, "/v1/audio/transcriptions", transcribe, method="POST"),
        *route(state, "/v1/audio/translations", translate, method="POST"),
    ]


@dataclass(frozen=True)
class Asked:
    """What the form asks for."""

    format: str
    stream: bool
    segments: bool
    words: bool
    transcription: Transcription
    request_id: str | None


async def _read_out(call: Call, *, translate: bool) -> Response:
    form = await call.form()
    try:
        asked = _asked(form, translate=translate)
        call.name(asked.request_id)
        info = call.require("transcription", "transcript")
        audio = await _file(form, info, call.state.settings.max_upload_bytes)
    finally:
        await form.close()
    request = GenerateRequest(
        id=call.id,
        task="transcription",
        terminals=("transcript",),
        audio=audio,
        listener="confirmed" if asked.stream else "none",
        transcription=asked.transcription,
    )
    work = call.work(request)
    try:
        if asked.stream:
            await call.unless_gone(work.begin())
            return call.live_events(_stream(work), work)
        result = await call.unless_gone(_gather(work))
    except Refused as error:
        if error.param != "audio":
            raise
        raise Refused(str(error), code=error.code, param="file") from error  # as this door calls it
    return await call.timed(_answer(result, asked, "translate" if translate else "transcribe"), work)


def _answer(result: TranscriptResult, asked: Asked, task: str) -> Response:
    match asked.format:
        case "text":
            return PlainTextResponse(result.text.strip() + "\n")
        case "srt":
            return PlainTextResponse(formats.as_srt(result))
        case "vtt":
            return PlainTextResponse(formats.as_vtt(result), media_type="text/vtt")
        case "verbose_json":
            return JsonAnswer(formats.as_verbose(result, task, segments=asked.segments, words=asked.words))
        case _:
            return JsonAnswer(formats.as_json(result))


async def _gather(work: Work) -> TranscriptResult:
    result, pieces = None, []
    async for event in work:
        if isinstance(event.data, TranscriptDelta):
            pieces.append(event.data.text)
        elif isinstance(event.data, TranscriptResult):
            result = event.data
    return result if result is not None else TranscriptResult(text="".join(pieces))


async def _stream(work: Work) -> AsyncGenerator[dict[str, Any], None]:
    result, told = TranscriptResult(text=""), False
    async for event in work:
        if isinstance(event.data, TranscriptDelta) and event.data.text:
            told = True
            yield {"type": "transcript.text.delta", "delta": event.data.text}
        elif isinstance(event.data, TranscriptResult):
            result = event.data
    text = result.text.strip()
    if text and not told:  # a transcriber that reads in one go
        yield {"type": "transcript.text.delta", "delta": text}
    yield {"type": "transcript.text.done", "text": text, "usage": formats.usage(result)}


# ---- the form
def _asked(form: FormData, *, translate: bool) -> Asked:
    format = _text(form, "response_format") or "json"
    if format == "diarized_json":
        raise invalid(
            "response_format", "speakers are not told apart here: diarized_json is not supported", "unsupported_value"
        )
    if format not in formats.FORMATS:
        raise invalid("response_format", f"{format[:64]!r} is not one of {', '.join(formats.FORMATS)}")
    grains = _list(form, "timestamp_granularities") or ["segment"]
    for grain in grains:
        if grain not in ("segment", "word"):
            raise invalid("timestamp_granularities", f"{grain[:64]!r} is not one of segment, word")
    if "logprobs" in _list(form, "include"):
        raise invalid("include", "log probabilities are not supported", "unsupported_value")
    stream = _boolean(form, "stream") and format in STREAMED and not translate
    transcription = Transcription(
        language="" if translate else _language(form),
        prompt=_text(form, "prompt"),
        keywords=tuple(_list(form, "keywords")),
        words=format == "verbose_json" and "word" in grains,
        translate=translate,
        temperature=_temperature(form),
    )
    return Asked(format, stream, "segment" in grains, "word" in grains, transcription, _text(form, "request_id") or None)


async def _file(form: FormData, info: PipelineInfo, limit: int) -> AudioPart:
    file = form.get("file")
    if file is None:
        raise missing("file")
    if not isinstance(file, UploadFile):
        raise invalid("file", "expected an uploaded file, not a text field", "invalid_type")
    data = await file.read()
    if len(data) > limit:
        raise TooBig(f"The file has {len(data)} bytes; the limit is {limit}.", code="file_too_large", param="file")
    if not data:
        raise invalid("file", "the audio file is empty", "invalid_audio")
    _, dot, suffix = (file.filename or "").rpartition(".")
    return AudioPart(data=data, format=suffix.lower()[:16] if dot else "", key=content_key(data))


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(name, "expected a text field, not a file", "invalid_type")
    return value.strip()


def _list(form: FormData, name: str) -> list[str]:
    """Clients write array names with brackets; by hand they come without."""
    values = [*form.getlist(f"{name}[]"), *form.getlist(name)]
    if not all(isinstance(value, str) for value in values):
        raise invalid(name, "expected text fields, not files", "invalid_type")
    return [str(value).strip() for value in values if str(value).strip()]


def _boolean(form: FormData, name: str) -> bool:
    value = _text(form, name).lower()
    if value not in (*_TRUE, *_FALSE):
        raise invalid(name, "expected true or false", "invalid_type")
    return value in _TRUE


def _temperature(form: FormData) -> float:
    given = _text(form, "temperature")
    try:
        value = float(given or 0)
    except ValueError:
        raise invalid("temperature", "expected a number", "invalid_type") from None
    if not 0 <= value <= 1:
        raise invalid("temperature", "expected a number from 0 to 1")
    return value


def _language(form: FormData) -> str:
    """One language; of several that are hinted at, the first one counts."""
    given = _text(form, "language") or next(iter(_list(form, "languages")), "")
    if not given:
        return ""
    code = code_of(given)
    if code is None:
        raise invalid("language", f"{given[:64]!r} is no ISO 639-1 code known here")
    return code
