"""One remote server in one role: address, key, time-outs, retry, breaker, and what its errors mean to a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from antiphon.pipelines.engines.openai.breaker import Breaker
from antiphon.pipelines.errors import Refused, StageFailed

CONNECT_S = 5.0
RETRY_AFTER_MAX_S = 2.0
MAX_ERROR_TEXT = 300


class Trouble(Exception):
    """A try failed in a way that another may not; ``wait_s`` before it. Never leaves the stage that asked."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def api_key(role: str, url: str) -> str:
    """``ANTIPHON_<ROLE>_API_KEY``; ``OPENAI_API_KEY`` only for OpenAI's own host, so that no other ever sees it."""
    key = os.environ.get(f"ANTIPHON_{role.upper()}_API_KEY", "")
    if not key and urlsplit(url).hostname == "api.openai.com":
        key = os.environ.get("OPENAI_API_KEY", "")
    return key


class Server:
    """``first_s``: patience for the first byte of an answer; ``stall_s``: between two pieces of it."""

    def __init__(
        self, role: str, url: str, model: str, *, first_s: float = 30.0, stall_s: float = 20.0, breaker: Breaker | None = None
    ) -> None:
        self.role = role
        self.model = model
        self.first_s = first_s
        self.stall_s = stall_s
        self.breaker = breaker or Breaker()
        self._url = url.rstrip("/")
        self._client: httpx.AsyncClient | None = None

    @property
    def client(self) -> httpx.AsyncClient:
        if self._client is None:
            key = api_key(self.role, self._url)
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx.Timeout(self.stall_s, connect=CONNECT_S, read=None),
                limits=httpx.Limits(max_connections=128, max_keepalive_connections=16),
                trust_env=False,
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @contextlib.asynccontextmanager
    async def post(self, path: str, **content: Any) -> AsyncIterator[httpx.Response]:
        """A streamed POST. Raises Trouble for what may pass, Refused and StageFailed for what will not.

        Leaving the context closes the connection, which is how a server learns that nobody listens any more.
        """
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self.first_s):
                    response = await stack.enter_async_context(self.client.stream("POST", self._url + path, **content))
                    if response.status_code >= 400:
                        raise self._error(response, await response.aread())
                yield response
        except TimeoutError as error:
            raise Trouble("did not answer in time") from error
        except httpx.TransportError as error:
            raise Trouble("could not be reached, or broke the connection") from error

    async def pieces(self, source: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The pieces of a body, each within its time."""
        patience = self.first_s
        while True:
            try:
                async with asyncio.timeout(patience):
                    piece = await anext(source)
            except StopAsyncIteration:
                return
            patience = self.stall_s
            yield piece

    def failure(self, trouble: Trouble) -> StageFailed:
        return StageFailed(self.role, f"the remote {self.role} {trouble}", code="upstream_error", retryable=True)

    def resting(self) -> StageFailed:
        return StageFailed(self.role, f"the remote {self.role} keeps failing; it is left alone for a moment",
                           code="upstream_unavailable", retryable=True)  # fmt: skip

    def _error(self, response: httpx.Response, body: bytes) -> Exception:
        status = response.status_code
        if status == 429 or status >= 500 or status == 408:
            try:
                wait = float(response.headers.get("retry-after", "0"))
            except ValueError:
                wait = 0.0
            return Trouble(f"answered {status}", min(max(wait, 0.0), RETRY_AFTER_MAX_S))
        if status in (401, 403):
            return StageFailed(self.role, f"the remote {self.role} does not accept our API key", code="upstream_error")
        if status == 404:
            return StageFailed(self.role, f"the remote {self.role} has no model {self.model!r} or no such endpoint",
                               code="upstream_error")  # fmt: skip
        said = _message(body)
        return Refused(f"the remote {self.role} refused the request ({status})" + (f": {said}" if said else ""))


async def lines(source: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Of an event stream. They end at line feeds alone: JSON may hold every other character that Python ends lines at."""
    held = b""
    async for piece in source:
        *whole, held = (held + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").removesuffix("\r")
    if held:
        yield held.decode("utf-8", "replace")


def _message(body: bytes) -> str:
    """The message of an error in OpenAI's shape or one that is like it, "" for anything else."""
    try:
        said = json.loads(body)
        error = said.get("error", said)
        return str(error["message"] if isinstance(error, dict) else error)[:MAX_ERROR_TEXT]
    except (AttributeError, ValueError, KeyError, TypeError):
        return ""
