"""SGLang as the Thinker: a running server, or an engine in this process. Text-only prompts speak all the same.

Spoken text needs only token ids and rows of the embedding table, which the Talker has; so does the opening. Only media
places need the states of an inner layer, which SGLang does not give out: prompts with media are refused by name.

Tools and JSON by a schema are kept by SGLang. What could not be kept by our own thinker is refused here too, and a call is
checked before it is told as complete.

Never run against a real server; the in-process engine is **not verified on a GPU**.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from antiphon.pipelines.engines.openai.server import Trouble
from antiphon.pipelines.engines.sglang.exchange import Exchange
from antiphon.pipelines.engines.sglang.messages import Reading
from antiphon.pipelines.engines.sglang.transport import EngineTransport, ServerTransport, Transport
from antiphon.pipelines.engines.torch.guided import Unguided
from antiphon.pipelines.engines.torch.sampling import COLD, Sampling
from antiphon.pipelines.errors import ConfigError, Refused, StageFailed
from antiphon.pipelines.outputs import CallDelta
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.answer import Answer, End, Marks, Piece
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.params import CONTEXT_TOKENS, Thinking, generation_defaults, thinker_params
from antiphon.pipelines.qwen3_omni.payloads import Finished, Prompt, Said, ThinkerChunk, ThinkerInput
from antiphon.pipelines.qwen3_omni.structural import constraint, forced
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import AsyncStage, Chunk, Output, Request

log = logging.getLogger("antiphon.sglang")

TRIES = 2
BARRED = -1000.0
"""Added to the score of a token that may not be said."""


class SglangThinker(AsyncStage):
    """``folder``: the checkpoint, for its tokenizer and config. Either ``url`` and ``model_name`` of a server, or ``engine``:
    arguments of ``sglang.Engine`` for one in this process. ``context``: tokens of prompt and answer."""

    def __init__(
        self,
        folder: str,
        *,
        url: str = "",
        model_name: str = "",
        engine: dict[str, Any] | None = None,
        context: int = CONTEXT_TOKENS,
    ) -> None:
        self.transport: Transport = ServerTransport(url, model_name) if url else EngineTransport(folder, engine or {})
        config = model.read_config(folder)
        text = config.thinker_config.text_config
        self.context = min(context, text.max_position_embeddings)
        self.vocabulary: int = text.vocab_size
        self.defaults, ends = generation_defaults(model.read_generation(folder))
        self.eos = frozenset((config.im_end_token_id, *ends))
        self.tokenizer = read_tokenizer(folder)
        self.control = frozenset(self.tokenizer.get_added_vocab().values())
        self.marks = Marks(self.tokenizer)
        self.guides = Unguided(self.tokenizer, self.eos, self.vocabulary)
        self._met = False

    async def warm_up(self) -> None:
        """The server may come up after us. One that is there and is the wrong one is told now."""
        await asyncio.to_thread(self.guides.warm_up)
        try:
            await self._meet()
        except Trouble as trouble:
            log.warning("thinker: the SGLang server %s; it is asked again with the first request", trouble)

    async def shut_down(self) -> None:
        await self.transport.close()

    async def run(self, request: Request, inputs: ThinkerInput, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        if inputs.audio is not None or inputs.visual is not None:
            raise Refused(MEDIA_REFUSED, code="unsupported_value", param="messages")
        params = thinker_params(request.body, self.defaults)
        # Up to 0.5.10 SGLang takes no request that could fill its context to the last token.
        room = self.context - len(inputs.ids) - 1
        if room < 1:
            raise Refused(
                f"this model's maximum context length is {self.context} tokens; the prompt has {len(inputs.ids)}",
                code="context_length_exceeded",
                param="messages",
            )
        ends = self.eos | params.stop_ids
        answer = await asyncio.to_thread(
            Answer, request.body, self.tokenizer, self.marks, self.guides, min(params.max_tokens, room), ends
        )
        prompt = Prompt(inputs.ids, inputs.layout) if "audio" in request.terminals else None
        async with aclosing(self._pieces(inputs, request.body, params, answer)) as pieces:
            async for piece, cached in pieces:
                chunk: ThinkerChunk
                if isinstance(piece, End):
                    chunk = _finished(piece, inputs, answer, cached)
                elif isinstance(piece, CallDelta):
                    chunk = piece
                else:
                    chunk, prompt = Said(piece, prompt), None
                yield Output(chunk)
        yield Output(None, result=True)

    async def _pieces(
        self, inputs: ThinkerInput, body: GenerateRequest, params: Thinking, answer: Answer
    ) -> AsyncGenerator[tuple[Piece, int], None]:
        """What the answer brings, its End last, and how much of the prompt was cached. One more try while nothing was said."""
        ids = inputs.ids.tolist()
        if forced(body):
            # Only so it is sure to be this token: a grammar would take its letters too.
            ids.append(self.marks.begin)
            for piece in answer.take(self.marks.begin):
                yield piece, 0
                return
        sampling = {**_sampling(params, answer), **constraint(body, answer.offered)}
        for attempt in range(TRIES):
            exchange: Exchange | None = None
            try:
                await self._meet()
                exchange = Exchange(self.transport, ids, sampling)
                while True:
                    for piece in self._taken(answer, await exchange.next(), exchange.reading):
                        yield piece, exchange.reading.cached
                        if isinstance(piece, End):
                            return
            except Trouble as trouble:
                self._met = False
                if attempt + 1 == TRIES or (exchange is not None and exchange.reading.made):
                    raise _failed(str(trouble), retryable=True) from trouble
                await asyncio.sleep(trouble.wait_s)
            except ConfigError as error:
                log.error("%s", error)
                raise _failed("is not the one that this server was set up for") from error
            finally:
                if exchange is not None:
                    await exchange.close()

    def _taken(self, answer: Answer, new: list[int], reading: Reading) -> Sequence[Piece]:
        """Raises StageFailed for tokens that cannot be part of such an answer."""
        if any(not 0 <= token < self.vocabulary for token in new):
            raise _failed("said a token that this checkpoint does not have")
        if reading.finish == "length":
            answer.limit = min(answer.limit, answer.made + len(new))  # it may know a narrower one
        elif reading.finish and new and new[-1] in self.control:
            answer.ends |= {new[-1]}  # an end of the server's own; no control token is ever spoken
        pieces: list[Piece] = []
        for token in new:
            pieces += answer.take(token)
            if pieces and isinstance(pieces[-1], End):
                return pieces
        if reading.finish:
            pieces += answer.over("length" if reading.finish == "length" else "stop")
        return pieces

    async def _meet(self) -> None:
        """Ask, once and again after trouble, whether the server is the one that it should be."""
        if self._met:
            return
        tokens = await self.transport.context()
        if 0 < tokens < self.context:
            raise ConfigError(
                f"thinker: the SGLang server takes {tokens} tokens, this pipeline counts on {self.context}: "
                f"set context = {tokens} in [stage.thinker], or start SGLang with --context-length {self.context}"
            )
        self._met = True


MEDIA_REFUSED = (
    "the thinker is an SGLang server, which does not give out the hidden states that speech needs at media places: "
    "prompts with audio, images or videos are not supported with it"
)


def _failed(what: str, retryable: bool = False) -> StageFailed:
    return StageFailed("thinker", f"the SGLang server {what}", code="upstream_error", retryable=retryable)


def _finished(end: End, inputs: ThinkerInput, answer: Answer, cached: int) -> Finished:
    return Finished(
        end.reason,
        prompt_tokens=len(inputs.ids),
        cached_tokens=cached,
        completion_tokens=answer.made,
        token=end.token,
        shown=end.shown,
    )


def _sampling(params: Thinking, answer: Answer) -> dict[str, Any]:
    """SGLang's ``sampling_params``, but for what keeps an answer to a form."""
    s: Sampling = params.sampling
    made: dict[str, Any] = {
        "max_new_tokens": answer.limit - answer.made,
        "temperature": s.temperature if s.temperature >= COLD else 0.0,
        "top_p": max(s.top_p, float(np.finfo(np.float32).eps)),  # 0, the first one alone, is refused there
        "top_k": s.top_k or -1,
        "repetition_penalty": s.repetition_penalty,
        "stop_token_ids": sorted(answer.ends),
        "skip_special_tokens": False,
    }
    if s.seed is not None:
        made["sampling_seed"] = s.seed
    if answer.barred >= 0:
        made["logit_bias"] = {str(answer.barred): BARRED}
    return made
