"""SGLang as the Thinker: a running server, or an engine in this process. Text-only prompts speak all the same.

Spoken text needs only token ids and rows of the embedding table, which the Talker has; so does the opening. Only media
places need the states of an inner layer, which SGLang does not give out: prompts with media are refused by name.

Spoken is SGLang's own ``/generate`` (token ids in, token ids out), because its OpenAI doors return text without ids. The
shapes are those of sglang 0.5.23: each message carries ``output_ids`` (all so far, or only the new ones under
``--incremental-streaming-output``) and ``meta_info`` with ``completion_tokens`` and, at the end, ``finish_reason``.

The in-process engine is **not verified on a GPU**.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

import httpx

from antiphon.pipelines.engines.torch.sampling import Sampling
from antiphon.pipelines.errors import ConfigError, Refused, StageFailed
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.qwen3_omni.params import CONTEXT_TOKENS, Thinking, thinker_params
from antiphon.pipelines.qwen3_omni.payloads import Finished, Prompt, Said, ThinkerChunk, ThinkerInput
from antiphon.pipelines.qwen3_omni.stops import StopScan
from antiphon.pipelines.stage import AsyncStage, Chunk, Output, Request

CONFIRM_S = 5.0
"""How long an aborted request waits for the engine's own word that it has stopped."""
QUEUED = 4096
"""Messages read ahead of the answer's reader: a whole answer."""
Mail = dict[str, Any] | Exception | None
"""A message, what ended the stream, or its end."""


class Transport(Protocol):
    """How the engine is reached. ``stream`` yields SGLang's messages; after ``abort`` it yields the end of the request."""

    async def check(self) -> None: ...

    def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncIterator[dict[str, Any]]: ...

    async def abort(self, rid: str) -> None: ...

    async def close(self) -> None: ...


class SglangThinker(AsyncStage):
    """``folder``: the checkpoint, for its tokenizer and config. Either ``url`` and ``model`` of a server, or ``engine``:
    arguments of ``sglang.Engine`` for one in this process."""

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
        generation = model.read_generation(folder)
        self.defaults = generation if generation.get("do_sample") else {}
        eos = generation.get("eos_token_id") or ()
        self.eos = frozenset((config.im_end_token_id, *([eos] if isinstance(eos, int) else eos)))
        self.tokenizer = read_tokenizer(folder)
        self.context = context

    async def warm_up(self) -> None:
        await self.transport.check()

    async def shut_down(self) -> None:
        await self.transport.close()

    async def run(self, request: Request, inputs: ThinkerInput, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        if inputs.audio is not None or inputs.visual is not None:
            raise Refused(MEDIA_REFUSED, code="unsupported_value", param="messages")
        params = thinker_params(request.body, self.defaults)
        room = self.context - len(inputs.ids)
        if room < 1:
            raise Refused(
                f"the prompt is {len(inputs.ids)} tokens long; this server's context is {self.context}",
                code="context_length_exceeded",
                param="messages",
            )
        ends = self.eos | params.stop_ids
        limit = min(params.max_tokens, room)
        answer = _Answer(inputs, params, Detokenizer(self.tokenizer), speaks="audio" in request.terminals)
        mail: asyncio.Queue[Mail] = asyncio.Queue(QUEUED)
        reader = asyncio.ensure_future(self._read(inputs.ids.tolist(), _sampling(params, ends, limit), request.id, mail))
        try:
            while not answer.over:
                message = await mail.get()
                if isinstance(message, Exception):
                    raise message
                for chunk in answer.take(message or {"error": {"message": "it closed the stream"}}, ends):
                    yield Output(chunk)
            yield Output(answer.end())
            yield Output(None, result=True)
        finally:
            # However this ends, the engine must have stopped when it has.
            if not answer.finished and not reader.done():
                await self._stopped(request.id, mail)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, ids: list[int], sampling: dict[str, Any], rid: str, mail: asyncio.Queue[Mail]) -> None:
        """In a task of its own, so that an aborted request can still hear the engine out."""
        try:
            async for message in self.transport.stream(ids, sampling, rid):
                await mail.put(message)
        except Exception as error:  # noqa: BLE001  # handed to the one who reads the mail
            await mail.put(error)
            return
        await mail.put(None)

    async def _stopped(self, rid: str, mail: asyncio.Queue[Mail]) -> None:
        """Abort, then read on until the engine itself says that the request has ended."""
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(CONFIRM_S):
                await self.transport.abort(rid)
                while isinstance(message := await mail.get(), dict):
                    if (message.get("meta_info") or {}).get("finish_reason"):
                        return


MEDIA_REFUSED = (
    "the thinker is an SGLang server, which does not give out the hidden states that speech needs at media places: "
    "prompts with audio, images or videos are not supported with it"
)


class _Answer:
    """SGLang's messages of one request -> the Thinker's chunks."""

    def __init__(self, inputs: ThinkerInput, params: Thinking, text: Detokenizer, speaks: bool) -> None:
        self.inputs = inputs
        self.prompt = Prompt(inputs.ids, inputs.layout) if speaks else None
        self.stops = StopScan(params.stops, text if params.stops else None)
        self.made = 0
        self.reason: str | None = None
        self.over = False
        self.finished = False
        """The engine itself has said that it is done."""
        self.final = -1

    @property
    def hit(self) -> bool:
        return self.stops.hit is not None

    def take(self, message: dict[str, Any], ends: frozenset[int]) -> list[ThinkerChunk]:
        """The chunks of what is new. Raises StageFailed for an error message or an end that is not the answer's."""
        if "error" in message:
            raise StageFailed("thinker", f"the SGLang server answered: {message['error'].get('message', 'an error')}")
        ids, meta = message.get("output_ids") or [], message.get("meta_info") or {}
        total = int(meta.get("completion_tokens", len(ids)))
        new = ids[len(ids) - (total - self.made) :] if total > self.made else []
        self.made = total
        finish = meta.get("finish_reason")
        if finish:
            self.over = self.finished = True
            self.reason = str(finish.get("type"))
            if self.reason not in ("stop", "length"):
                raise StageFailed("thinker", f"the SGLang server ended the answer: {self.reason}", retryable=True)
            # The terminal token is never spoken: an end mark is dropped, the token at the limit is only shown.
            if new and new[-1] in ends:
                new = new[:-1]
            elif new and self.reason == "length":
                self.final = new[-1]
                new = new[:-1]
        said: list[int] = []
        for token in new:
            said += self.stops.push(token)
            if self.hit:
                self.over, self.reason, self.final = True, "stop", -1
                break
        if self.over and not self.hit:
            said += self.stops.flush()
        return [self._say(token) for token in said]

    def end(self) -> Finished:
        return Finished(
            "length" if self.reason == "length" else "stop",
            prompt_tokens=len(self.inputs.ids),
            completion_tokens=self.made,
            token=self.final,
            shown=self.stops.hit or "",
        )

    def _say(self, token: int) -> Said:
        prompt, self.prompt = self.prompt, None
        return Said(token, prompt)


def _sampling(params: Thinking, ends: frozenset[int], limit: int) -> dict[str, Any]:
    """SGLang's ``sampling_params``."""
    s: Sampling = params.sampling
    made: dict[str, Any] = {
        "max_new_tokens": limit,
        "temperature": s.temperature,
        "top_p": s.top_p,
        "top_k": s.top_k or -1,
        "repetition_penalty": s.repetition_penalty,
        "stop_token_ids": sorted(ends),
        "skip_special_tokens": False,
    }
    if s.seed is not None:
        made["sampling_seed"] = s.seed
    return made


class ServerTransport:
    """A running SGLang server; ``url`` is its OpenAI base (``http://host:30000/v1``) or its root."""

    def __init__(self, url: str, model_name: str) -> None:
        self._root = url.rstrip("/").removesuffix("/v1")
        self._model = model_name
        self._client = httpx.AsyncClient(base_url=self._root, timeout=httpx.Timeout(10.0, read=None), trust_env=False)

    async def check(self) -> None:
        try:
            listed = (await self._client.get("/v1/models", timeout=10.0)).raise_for_status().json()
            names = [entry["id"] for entry in listed["data"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"thinker: no SGLang server answers at {self._root} ({type(error).__name__})") from error
        if self._model and self._model not in names:
            raise ConfigError(f"thinker: the server at {self._root} serves {', '.join(names)}, not {self._model}")

    async def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncIterator[dict[str, Any]]:
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True, "rid": rid}
        try:
            async with self._client.stream("POST", "/generate", json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise StageFailed("thinker", f"the SGLang server answered {response.status_code}", retryable=True)
                async for line in response.aiter_lines():
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        yield json.loads(data)
        except (httpx.HTTPError, ValueError) as error:
            raise StageFailed(
                "thinker", f"the SGLang server could not be read ({type(error).__name__})", retryable=True
            ) from error

    async def abort(self, rid: str) -> None:
        await self._client.post("/abort_request", json={"rid": rid}, timeout=CONFIRM_S)

    async def close(self) -> None:
        await self._client.aclose()


class EngineTransport:
    """``sglang.Engine`` in this process; it owns its ranks. Not verified on a GPU: no machine here has had one."""

    def __init__(self, folder: str, arguments: dict[str, Any], engine: Any = None) -> None:
        if engine is None:
            try:
                sglang = importlib.import_module("sglang")
            except ImportError as error:
                raise ConfigError("thinker sglang: the package is not installed: pip install 'antiphon[sglang]'") from error
            engine = sglang.Engine(model_path=folder, **arguments)
        self._engine = engine

    async def check(self) -> None:
        return

    async def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncIterator[dict[str, Any]]:
        stream = await self._engine.async_generate(input_ids=ids, sampling_params=sampling, stream=True, rid=rid)
        async for message in stream:
            yield message

    async def abort(self, rid: str) -> None:
        self._engine.tokenizer_manager.abort_request(rid=rid)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.shutdown)
