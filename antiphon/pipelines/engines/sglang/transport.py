"""How the engine is reached: a server over HTTP, or ``sglang.Engine`` in this process (**not verified on a GPU**)."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import httpx

from antiphon.pipelines.engines.openai.server import Server, Trouble, lines
from antiphon.pipelines.errors import ConfigError, Refused

ASK_S = 10.0


class Transport(Protocol):
    """``stream`` yields SGLang's messages; after ``abort`` it yields the end of the request."""

    async def context(self) -> int:
        """Tokens of prompt and answer that the model there takes, 0 where it does not say. Raises Trouble when nothing answers,
        ConfigError when it is not what was asked for."""

    def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncGenerator[Any, None]: ...

    async def abort(self, rid: str) -> None: ...

    async def close(self) -> None: ...


class ServerTransport:
    """A running SGLang server; ``url`` is its OpenAI base (``http://host:30000/v1``) or its root. Where it wants a key:
    ``ANTIPHON_THINKER_API_KEY``. ``first_s``, ``stall_s``: patience for the first message and between two."""

    def __init__(self, url: str, model_name: str, *, first_s: float = 30.0, stall_s: float = 20.0) -> None:
        self.root = url.rstrip("/").removesuffix("/v1")
        self._server = Server("thinker", self.root, model_name, first_s=first_s, stall_s=stall_s)

    async def context(self) -> int:
        try:
            answer = await self._server.client.get(f"{self.root}/v1/models", timeout=ASK_S)
            if answer.status_code in (401, 403):
                raise ConfigError("thinker: the SGLang server does not accept our key: ANTIPHON_THINKER_API_KEY")
            cards = {str(card["id"]): card for card in answer.raise_for_status().json()["data"]}
            card = cards.get(self._server.model)
            if card is None:
                # Neither its address nor its names, which may be folders: /health tells what kept a process from starting.
                raise ConfigError(
                    f"thinker: the SGLang server has no model {self._server.model}; its /v1/models tells the names"
                )
            return int(card.get("max_model_len") or 0)
        except ConfigError:
            raise
        except (httpx.HTTPError, AttributeError, TypeError, KeyError, ValueError) as error:
            raise Trouble("could not be reached, or is no SGLang server") from error

    async def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncGenerator[Any, None]:
        breaker = self._server.breaker
        if not breaker.allows():
            raise self._server.resting()
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True, "rid": rid}
        try:
            async with self._server.post("/generate", json=body) as response:
                async for line in self._server.pieces(lines(response.aiter_bytes())):
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        yield _parsed(data)
            breaker.succeeded()
        except Trouble:
            breaker.failed()
            raise
        finally:
            breaker.gave_up()

    async def abort(self, rid: str) -> None:
        async with self._server.post("/abort_request", json={"rid": rid}):
            pass

    async def close(self) -> None:
        await self._server.close()


class EngineTransport:
    """``sglang.Engine`` in this process; it owns its ranks. Not verified on a GPU: no machine here has had one."""

    def __init__(self, folder: str, arguments: dict[str, Any], engine: Any = None) -> None:
        if engine is None:
            try:
                sglang = importlib.import_module("sglang")
            except ImportError as error:
                raise ConfigError(
                    "thinker sglang: the package is not installed, and its releases pin another torch and transformers than "
                    "Antiphon's; run SGLang as a server of its own: --thinker openai:URL#MODEL"
                ) from error
            engine = sglang.Engine(model_path=folder, **arguments)
        self._engine = engine

    async def context(self) -> int:
        return 0

    async def stream(self, ids: list[int], sampling: dict[str, Any], rid: str) -> AsyncGenerator[Any, None]:
        try:
            stream = await self._engine.async_generate(input_ids=ids, sampling_params=sampling, stream=True, rid=rid)
            async for message in stream:
                # The engine's own list, which it goes on writing into while the message waits to be read.
                yield {**message, "output_ids": list(message["output_ids"])}
        except ValueError as error:  # how its checks refuse
            raise Refused(f"the SGLang engine refused the request: {error}") from error

    async def abort(self, rid: str) -> None:
        self._engine.tokenizer_manager.abort_request(rid=rid)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.shutdown)


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Trouble("sent a message that is no JSON") from error
