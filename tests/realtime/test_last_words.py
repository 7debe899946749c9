"""The server ends while answers over REST run: who reads is told why, who does not is cut off, and the log has no traceback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest

from antiphon.pipelines.client import Event
from antiphon.pipelines.outputs import AudioDelta, TextDelta
from antiphon.realtime import doors, sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.settings import Settings
from tests.realtime.rest.conftest import until
from tests.realtime.stub_client import StubClient

ASK = {"model": "x", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
SAY = json.dumps({"model": "x", "voice": "anna", "input": "Hello", "response_format": "pcm"}).encode()


@asynccontextmanager
async def served(client: StubClient) -> AsyncIterator[tuple[sockets.Server, asyncio.Task[None], int]]:
    app = create_app(Settings(), lambda: client)
    config = sockets.config(app, port=0, lifespan="on", log_config=None, timeout_graceful_shutdown=2)
    server = sockets.Server(config, app.state.doors.drain)
    serving = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started and app.state.antiphon.ready, 10)
        yield server, serving, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def test_a_stream_that_outlasts_the_server_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(doors, "LAST_WORDS_S", 0.3)
    client = StubClient(lambda request: [Event("text", TextDelta("word ")), asyncio.Event()])
    lines: list[str] = []
    async with (
        served(client) as (server, _, port),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
        http.stream("POST", "/v1/chat/completions", json=ASK) as answer,
    ):
        async for line in answer.aiter_lines():
            lines += [line] if line else []
            if "word" in line:
                server.should_exit = True
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["code"] == "server_shutting_down"
    assert "Traceback" not in caplog.text
    assert not [r for r in caplog.records if r.levelname == "ERROR"]


async def test_who_does_not_read_is_cut_off_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    silence = np.zeros(240_000, np.float32)
    client = StubClient(lambda request: [Event("audio", AudioDelta(silence)) for _ in range(100)])
    async with served(client) as (server, serving, port):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            peer.sendall(b"Content-Length: %d\r\n\r\n" % len(SAY) + SAY)
            await until(lambda: bool(client.live), 5)
            await asyncio.sleep(0.3)
            server.should_exit = True
            async with asyncio.timeout(10):
                await serving
    assert not client.live
    assert "Traceback" not in caplog.text
    assert not [r for r in caplog.records if r.exc_info]
