"""The transcriber played by a remote server: POST /audio/transcriptions (or /translations) for each clip."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.engines.openai.server import Server, Trouble
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.prepared import Clip, Prepared, Transcripts
from antiphon.pipelines.local.preprocessing import EAR_RATE, audio_parts
from antiphon.pipelines.media_cache import Known, MediaCache, Turn
from antiphon.pipelines.outputs import Segment, TranscriptDelta, TranscriptResult, Word
from antiphon.pipelines.requests import Transcription
from antiphon.pipelines.stage import AsyncStage, Chunk, Inputs, Output, Request

TRIES = 2
KEPT = 1024
"""Transcripts, over all conversations: text only."""


class OpenAITranscriber(AsyncStage):
    """Opens with ``Prepared``; Result ``Transcripts``. Segments and words as far as the server gives them (verbose_json).

    A part whose transcript is already known is not sent, and none is sent twice: the transcript that a client is shown and
    the ones that each later answer reads are one run. The text of the last clip goes out as one TranscriptDelta.
    """

    def __init__(self, url: str, model: str, *, first_s: float = 60.0) -> None:
        self._server = Server("transcriber", url, model, first_s=first_s, stall_s=first_s)
        self._verbose = True
        self._cache: MediaCache[TranscriptResult] = MediaCache(KEPT)
        self._news = asyncio.Event()
        """Set, and made anew, when a reading has ended; whoever waits for one looks again."""

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        prepared: Prepared = inputs
        known = [part.transcript for part in audio_parts(prepared.request)]
        results = []
        for clip, transcript in zip(prepared.clips, known, strict=True):
            if transcript is not None:
                results.append(TranscriptResult(transcript, duration=len(clip.pcm) / EAR_RATE))
            else:
                results.append(await self._transcript(clip, prepared.request.transcription))
        if results and results[-1].text:
            yield Output(TranscriptDelta(results[-1].text))
        yield Output(Transcripts(tuple(results)), result=True)

    async def _transcript(self, clip: Clip, options: Transcription) -> TranscriptResult:
        """Read once, however many ask at once or later; if the one who reads is aborted or fails, the next takes over."""
        key, me = (clip.key, options), object()
        found = self._cache.ask(key, me)
        try:
            while found is Turn.WAIT:
                await self._news.wait()
                found = self._cache.peek(key, me)
            if isinstance(found, Known):
                return found.value
            result = await self._read(clip.pcm, options)
            self._cache.put(key, me, result)
            return result
        finally:
            self._cache.leave(key, me)
            self._news.set()
            self._news = asyncio.Event()

    async def _read(self, pcm: NDArray[np.float32], options: Transcription) -> TranscriptResult:
        duration = len(pcm) / EAR_RATE
        if not len(pcm):
            return TranscriptResult("")
        breaker, wave_bytes = self._server.breaker, to_wav(pcm)
        for attempt in range(TRIES):
            if not breaker.allows():
                raise self._server.resting()
            try:
                answer = await self._ask(wave_bytes, options)
                breaker.succeeded()
                return _result(answer, duration)
            except Trouble as trouble:
                breaker.failed()
                if attempt + 1 == TRIES:
                    raise self._server.failure(trouble) from trouble
                await asyncio.sleep(trouble.wait_s)
            finally:
                breaker.gave_up()
        raise AssertionError("every try returns or raises")

    async def _ask(self, wave_bytes: bytes, options: Transcription) -> dict[str, Any]:
        """A server that knows no verbose_json is asked for json, from then on."""
        while True:
            verbose = self._verbose
            fields: dict[str, Any] = {"model": self._server.model, "response_format": "verbose_json" if verbose else "json"}
            if options.language and not options.translate:
                fields["language"] = options.language
            if prompt := ", ".join(p for p in (options.prompt, *options.keywords) if p):
                fields["prompt"] = prompt
            if options.temperature:
                fields["temperature"] = str(options.temperature)
            if options.words and verbose:
                fields["timestamp_granularities[]"] = ["word", "segment"]
            path = "/audio/translations" if options.translate else "/audio/transcriptions"
            files = {"file": ("speech.wav", wave_bytes, "audio/wav")}
            try:
                async with self._server.post(path, data=fields, files=files) as response:
                    return _json(b"".join([piece async for piece in self._server.pieces(response.aiter_bytes())]))
            except Refused:
                if not verbose:
                    raise
                self._verbose = False

    async def shut_down(self) -> None:
        await self._server.close()


def to_wav(pcm: NDArray[np.float32]) -> bytes:
    """float32 mono 16 kHz -> a 16-bit WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(EAR_RATE)
        file.writeframes((np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes())
    return out.getvalue()


def _json(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise Trouble("sent a transcript that is no JSON") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        raise Trouble("sent JSON that is no transcript")
    return answer


def _result(answer: dict[str, Any], duration: float) -> TranscriptResult:
    try:
        segments = tuple(
            Segment(
                start=float(s.get("start", 0.0)),
                end=float(s.get("end", 0.0)),
                text=str(s.get("text", "")),
                tokens=tuple(int(t) for t in s.get("tokens") or ()),
                avg_logprob=float(s.get("avg_logprob") or 0.0),
                no_speech_prob=float(s.get("no_speech_prob") or 0.0),
                compression_ratio=float(s.get("compression_ratio") or 1.0),
            )
            for s in answer.get("segments") or ()
        )
        words = tuple(Word(str(w["word"]), float(w["start"]), float(w["end"])) for w in answer.get("words") or ())
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise Trouble("sent segments of an unknown shape") from error
    language = str(answer.get("language") or "")
    return TranscriptResult(answer["text"].strip(), _iso(language), duration, segments, words)


def _iso(language: str) -> str:
    """OpenAI writes language names out ("english"); the common ones as ISO 639-1, others unknown."""
    names = {"english": "en", "german": "de", "french": "fr", "spanish": "es", "italian": "it", "portuguese": "pt",
             "dutch": "nl", "russian": "ru", "japanese": "ja", "chinese": "zh", "korean": "ko", "polish": "pl"}  # fmt: skip
    return language if len(language) == 2 else names.get(language.lower(), "")
