"""A real HTTP server on a real socket, in the test's own event loop, on a stub pipeline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import Any

import httpx
import pytest
import uvicorn

from antiphon.pipelines.info import PipelineInfo
from antiphon.realtime import sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.settings import Settings
from antiphon.realtime.state import State
from tests.realtime.stub_client import INFO, Script, StubClient, text


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Look again and again: what is waited for happens on other threads, or inside the server."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)


class Server:
    """``http`` talks to it; ``stub`` is its pipeline."""

    def __init__(
        self, http: httpx.AsyncClient, stub: Any, state: State, port: int = 0, connections: Collection[Any] = ()
    ) -> None:
        self.http, self.stub, self.state, self.port, self.connections = http, stub, state, port, connections

    async def settled(self) -> None:
        """Until no generation is live."""
        await until(lambda: not self.stub.live)


@contextlib.asynccontextmanager
async def serving(client: Any, settings: Settings) -> AsyncIterator[Server]:
    app = create_app(settings, lambda: client)
    config = sockets.config(app, port=0, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serve = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started, 10)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            yield Server(http, client, app.state.antiphon, port, server.server_state.connections)
    finally:
        server.should_exit = True
        await serve


@contextlib.asynccontextmanager
async def calling(client: Any, settings: Settings) -> AsyncIterator[Server]:
    """The same without a socket: for the many tests that only look at one whole answer."""
    app = create_app(settings, lambda: client)
    async with app.router.lifespan_context(app):
        await asyncio.sleep(0)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Server(http, client, app.state.antiphon)


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Server]]


@pytest.fixture
def serve() -> Serve:
    """``async with serve(script) as server``; further keywords are settings.

    ``socket``: over a real one, for what streams or hangs up.
    """

    def start(
        script: Script | None = None, *, info: PipelineInfo = INFO, client: Any = None, socket: bool = False, **settings: Any
    ) -> contextlib.AbstractAsyncContextManager[Server]:
        stub = client or StubClient(script or (lambda _: text("Hello", " there.")), info)
        return (serving if socket else calling)(stub, Settings(**settings))

    return start


async def hang_up_when(condition: Callable[[], bool], asking: Coroutine[Any, Any, Any]) -> None:
    """Ask, and leave before the answer has come, once it is so."""
    asked = asyncio.ensure_future(asking)
    await until(lambda: asked.done() or condition())
    assert asked.cancel(), "it was answered"
    await asyncio.gather(asked, return_exceptions=True)
