"""A stand-in for SGLang: the messages of its releases 0.5.10 and 0.5.23 over real HTTP, as read from their sources.

As ``python -m tests.qwen3_omni.fake_sglang FOLDER PORT [TEXT]`` it is a process that answers everything with TEXT.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

JSON = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b"data: [DONE]\n\n"
Answering = Callable[[dict[str, Any], asyncio.StreamWriter], Coroutine[Any, Any, None]]


def event(message: Any) -> bytes:
    return b"data: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n"


def said(ids: list[int], total: int, finish: dict[str, Any] | None = None, rid: str = "") -> dict[str, Any]:
    """Its text is there too, with the letters that JSON may hold as they are and at which lines do not end here."""
    meta = {"id": rid, "finish_reason": finish, "prompt_tokens": 9, "completion_tokens": total, "cached_tokens": 4}
    return {"text": "\u2028\x85", "output_ids": ids, "meta_info": meta}


def aborted(status: int | None, message: str) -> dict[str, Any]:
    return {"type": "abort", "message": message, "status_code": status, "err_type": None}


class FakeSglang:
    """Says ``tokens``. ``incremental``: its messages carry only what is new. ``script``: what is written to the next requests
    instead, one after another."""

    def __init__(self, tokens: list[int], end: str = "stop", incremental: bool = False, pace: float = 0.0) -> None:
        self.tokens, self.end, self.incremental, self.pace = tokens, end, incremental, pace
        self.key = ""
        self.takes = 4096
        self.script: list[Answering] = []
        self.bodies: list[dict[str, Any]] = []
        self.aborted: set[str] = set()
        self.confirmed: list[str] = []
        self.open = 0
        self.most_open = 0

    async def messages(self, rid: str) -> AsyncIterator[dict[str, Any]]:
        growing: list[int] = []  # passed on as it is: the engine in this process is given SGLang's own list
        for n in range(1, len(self.tokens) + 1):
            await asyncio.sleep(self.pace)
            growing.append(self.tokens[n - 1])
            last = n == len(self.tokens)
            reason: dict[str, Any] | None = None
            if rid in self.aborted:
                reason, last = aborted(None, "Aborted"), True
                self.confirmed.append(rid)
            elif last:
                reason = {"type": self.end, **({"matched": self.tokens[-1]} if self.end == "stop" else {"length": n})}
            yield said(self.tokens[n - 1 : n] if self.incremental else growing, n, reason, rid)
            if last:
                return

    # as ``sglang.Engine``
    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool, rid: str
    ) -> AsyncIterator[dict[str, Any]]:
        self.bodies.append({"input_ids": input_ids, "sampling_params": sampling_params, "stream": stream, "rid": rid})
        return self.messages(rid)

    @property
    def tokenizer_manager(self) -> FakeSglang:
        return self

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        self.aborted |= {body["rid"] for body in self.bodies if body["rid"].startswith(rid)}

    def shutdown(self) -> None:
        self.tokens = []

    # as a server
    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[str]:
        listening = await asyncio.start_server(self._serve_one, "127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        finally:
            listening.close()
            await listening.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n"))}
            length = int(fields.get("content-length", 0))
            body = json.loads(await reader.readexactly(length)) if length else {}
            if self.key and fields.get("authorization") != f"Bearer {self.key}":
                writer.write(b'HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n{"error": "Unauthorized"}')
            else:
                # Who hangs up ends what is being written for him.
                answer = asyncio.ensure_future(self._answer(head.split()[1], body, writer))
                gone = asyncio.ensure_future(reader.read())
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                for task in (answer, gone):
                    task.cancel()
                await asyncio.gather(answer, gone, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self.open -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/v1/models":
            card = {"id": "omni", "object": "model", "owned_by": "sglang", "max_model_len": self.takes}
            writer.write(JSON + json.dumps({"object": "list", "data": [card]}).encode())
        elif path == "/abort_request":
            self.abort_request(body["rid"])
            writer.write(JSON)
        elif path == "/generate":
            self.bodies.append(body)
            if self.script:
                await self.script.pop(0)(body, writer)
            else:
                writer.write(STREAM)
                async for message in self.messages(body["rid"]):
                    writer.write(event(message))
                    await writer.drain()
                writer.write(DONE)
        await writer.drain()


async def _main(folder: str, port: str, text: str = "hello there. The sound is clear.") -> None:
    from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer

    tokenizer = read_tokenizer(folder)
    fake = FakeSglang([*tokenizer.encode(text), tokenizer.convert_tokens_to_ids("<|im_end|>")], pace=0.02)
    async with fake.serve(int(port)) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
