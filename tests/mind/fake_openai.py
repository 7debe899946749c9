"""A fake OpenAI server on a real socket: it answers as told, and notes what it was asked and when it was hung up on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class FakeOpenAI:
    """``script``: one handler a request, the last one for all further; it writes to the connection itself."""

    script: list[Callable[[Connection], Awaitable[None]]]
    asked: list[Asked] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> FakeOpenAI:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(head[0].split()[1], headers, body))
            handler = self.script[min(len(self.asked), len(self.script)) - 1]
            await handler(Connection(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@dataclass
class Connection:
    fake: FakeOpenAI
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self, status: int = 200, kind: str = "text/event-stream", extra: str = "") -> None:
        self.writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{extra}Connection: close\r\n\r\n".encode())
        await self.writer.drain()

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def event(self, data: Any) -> None:
        await self.write(b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n")

    async def until_hung_up(self) -> None:
        await self.reader.read()
        self.fake.hung_up.set()


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": ({"content": content} if content else {}) | more, "finish_reason": finish}]}


USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


async def good(c: Connection) -> None:
    await c.head()
    for event in (delta(role="assistant"), delta("Hel"), delta("lo."), delta(finish="stop"), {"choices": [], "usage": USAGE}):
        await c.event(event)
    await c.event(b"[DONE]")


def status(code: int, body: dict[str, Any] | None = None, extra: str = "") -> Callable[[Connection], Awaitable[None]]:
    async def handler(c: Connection) -> None:
        await c.head(code, "application/json", extra)
        await c.write(json.dumps(body or {"error": {"message": "no"}}).encode())

    return handler


async def hang(c: Connection) -> None:
    await c.until_hung_up()


async def hang_after_two(c: Connection) -> None:
    await c.head()
    await c.event(delta("Hel"))
    await c.event(delta("lo"))
    await c.until_hung_up()


async def drop_at_once(c: Connection) -> None:
    c.writer.transport.abort()


async def drop_after_one(c: Connection) -> None:
    await c.head(extra="Content-Length: 100000\r\n")
    await c.event(delta("Hel"))


async def garbage(c: Connection) -> None:
    await c.head()
    await c.write(b"data: {broken\n\n")
    await c.event(b"[DONE]")


async def not_a_stream(c: Connection) -> None:
    await c.head(kind="text/html")
    await c.write(b"<html>hello</html>\n")
