"""The Thinker played by a remote server: streamed chat completions, tools passed through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from antiphon.pipelines.engines.openai.breaker import Breaker
from antiphon.pipelines.engines.openai.chat_payload import chat_payload
from antiphon.pipelines.engines.openai.chat_stream import ChatStream, events
from antiphon.pipelines.engines.openai.server import Server, Trouble, lines
from antiphon.pipelines.engines.openai.stand_in import StandIn
from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.local.prepared import Prepared
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import AsyncStage, Chunk, Inputs, Output, Request

TRIES = 2


class OpenAIThinker(AsyncStage):
    """The same stream as the local Thinker: TextDelta and CallDelta, then one TextResult.

    ``url``: up to and with ``/v1``. ``fallback``: when the server cannot be had and nothing was said, the local model
    answers (it is loaded at start; one request at a time). Otherwise: one retry while nothing was said, then StageFailed.
    ``stage_params`` of the local model do not travel.
    """

    def __init__(
        self,
        url: str,
        model: str,
        fallback: bool = False,
        *,
        first_s: float = 30.0,
        stall_s: float = 20.0,
        rest_s: float = 10.0,
    ) -> None:
        self._server = Server("thinker", url, model, first_s=first_s, stall_s=stall_s, breaker=Breaker(rest_s=rest_s))
        self._stand_in = StandIn() if fallback else None

    async def warm_up(self) -> None:
        """The server may come up after us: nothing is asked of it here."""
        if self._stand_in is not None:
            await self._stand_in.load()

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        body: GenerateRequest = inputs.request if isinstance(inputs, Prepared) else inputs
        if request.kind == "prepare":
            return  # the server's prefix cache is its own
        said = False
        try:
            async with aclosing(self._answer(body, "audio" in request.terminals)) as pieces:
                async for piece in pieces:
                    said = True
                    yield Output(piece)
        except StageFailed as failed:
            if said or self._stand_in is None or not failed.retryable:
                raise
            async with aclosing(self._stand_in.answer(request, body)) as local:
                async for piece in local:
                    yield Output(piece)

    async def _answer(self, body: GenerateRequest, spoken: bool) -> AsyncGenerator[TextDelta | CallDelta | TextResult, None]:
        """Raises Refused, or StageFailed (``retryable`` when the server is to blame)."""
        payload = chat_payload(body, self._server.model, spoken=spoken)
        breaker = self._server.breaker
        for attempt in range(TRIES):
            if not breaker.allows():
                raise self._server.resting()
            said = False
            try:
                stream = ChatStream()
                async with self._server.post("/chat/completions", json=payload) as response:
                    async for event in events(self._server.pieces(lines(response.aiter_bytes()))):
                        for piece in stream.feed(event):
                            said = True
                            yield piece
                breaker.succeeded()
                for end in stream.finish():
                    yield end
                return
            except Trouble as trouble:
                breaker.failed()
                if said or attempt + 1 == TRIES:
                    raise self._server.failure(trouble) from trouble
                await asyncio.sleep(trouble.wait_s)
            finally:
                breaker.gave_up()

    async def shut_down(self) -> None:
        await self._server.close()
        if self._stand_in is not None:
            self._stand_in.close()
