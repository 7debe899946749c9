"""Small writes leave at once, however the listening socket was made."""

from __future__ import annotations

import asyncio
import socket

from starlette.applications import Starlette

from antiphon.cli.serve import listen
from antiphon.realtime import sockets
from antiphon.settings import ServerSettings


async def test_nothing_waits_for_the_acknowledgement_of_what_was_sent_before() -> None:
    async def drain() -> None: ...

    listening = listen(ServerSettings(host="127.0.0.1", port=0))
    server = sockets.Server(sockets.config(Starlette(), log_level="error", lifespan="off"), drain)
    serving = asyncio.create_task(server._serve([listening]))
    try:
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110 - uvicorn has flags, no events
                await asyncio.sleep(0.01)
            _, writer = await asyncio.open_connection(*listening.getsockname())
            while not server.server_state.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (connection,) = server.server_state.connections
        taken = connection.transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
    finally:
        server.should_exit = True
        await serving
