"""The voice played by a remote server: POST /audio/speech for each clause, 24 kHz PCM as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.engines.openai.server import Server, Trouble
from antiphon.pipelines.engines.openai.speech_body import NoSpeech, SpeechBody
from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.local.spoken import SpokenClause
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, AudioResult, Mark
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import AsyncStage, Chunk, Inputs, Output, Request

TRIES = 2
CHARACTERS_PER_SECOND = 14.0
"""Of speech at normal speed: where a word is said is guessed from this until the clause is whole."""


class OpenAITalker(AsyncStage):
    """Fed ``SpokenClause``; chunks AudioDelta (marks proportional, never ahead of the guess), Result AudioResult.

    ``voice``: what the voice name "default" means to the server.
    """

    def __init__(self, url: str, model: str, voice: str = "alloy", *, first_s: float = 20.0, stall_s: float = 10.0) -> None:
        self._server = Server("talker", url, model, first_s=first_s, stall_s=stall_s)
        self._voice = voice

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        body: GenerateRequest = request.body
        samples, gap = 0, 0
        async for chunk in chunks:
            clause: SpokenClause = chunk.data
            if gap:
                yield _output(np.zeros(gap, np.float32), ())
                samples += gap
            began = samples
            guess = len(clause.text) / CHARACTERS_PER_SECOND / body.voice.speed * AUDIO_RATE
            passed = 0
            words = len(clause.word_ends)
            async with aclosing(self._say(clause.text, body)) as heard:
                async for pcm in heard:
                    samples += len(pcm)
                    marks = []
                    while passed < words - 1 and samples - began >= guess * (passed + 1) / words:
                        marks.append(Mark(samples, clause.word_ends[passed]))
                        passed += 1
                    yield _output(pcm, tuple(marks))
            yield _output(np.zeros(0, np.float32), (Mark(samples, clause.end),))
            gap = int(clause.gap_ms / 1000 / body.voice.speed * AUDIO_RATE)
        yield Output(AudioResult(samples), result=True)

    async def _say(self, text: str, body: GenerateRequest) -> AsyncGenerator[NDArray[np.float32], None]:
        """One retry while none of the clause was heard."""
        payload = {
            "model": self._server.model,
            "input": text,
            "voice": self._voice if body.voice.name == "default" else body.voice.name,
            "response_format": "pcm",
            "speed": body.voice.speed,
        }
        breaker = self._server.breaker
        for attempt in range(TRIES):
            if not breaker.allows():
                raise self._server.resting()
            heard = False
            try:
                async with self._server.post("/audio/speech", json=payload) as response:
                    sound = SpeechBody(response.headers.get("content-type", ""))
                    async for piece in self._server.pieces(response.aiter_bytes()):
                        if len(samples := sound.feed(piece)):
                            heard = True
                            yield samples
                    if len(samples := sound.end()):
                        yield samples
                breaker.succeeded()
                return
            except NoSpeech as what:
                said = f"the remote talker sent {what}; raw PCM of 24 kHz, or a WAV of 16 bits and one channel, can be played"
                raise StageFailed("talker", said, code="upstream_error") from what
            except Trouble as trouble:
                breaker.failed()
                if heard or attempt + 1 == TRIES:
                    raise self._server.failure(trouble) from trouble
                await asyncio.sleep(trouble.wait_s)
            finally:
                breaker.gave_up()

    async def shut_down(self) -> None:
        await self._server.close()


def _output(pcm: NDArray[np.float32], marks: tuple[Mark, ...]) -> Output:
    return Output(AudioDelta(pcm, marks, exact=False), span_ms=1000 * len(pcm) / AUDIO_RATE)
