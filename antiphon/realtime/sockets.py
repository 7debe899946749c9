"""The WebSocket server's own protocol: a peer that does not read can be cut off, and what it may send is bounded.

``uvicorn``'s protocol closes a transport by flushing it first; a peer that never reads would keep its descriptor and its
buffer for ever. So this one puts an ``abort`` into the ASGI scope and uses it itself where a ping got no answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from antiphon.realtime.http_protocol import ABORT, HttpProtocol
from antiphon.realtime.protocol.wire import MAX_FRAME

SETTINGS: dict[str, Any] = {"ws_max_size": MAX_FRAME, "ws_ping_interval": 20.0, "ws_ping_timeout": 20.0}
"""What ``uvicorn.Config`` needs beside ``ws=SocketProtocol``. Audio in base64 is not worth deflating."""
ACCEPTED_AT_ONCE = 4
"""Connections taken in before the first of them is looked at. asyncio takes in as many as its backlog in one go, and where
there is no descriptor left it tries, and logs a traceback, as often: 2048 of them used up all that were free, and the log."""
BACKLOG = 2048
"""Connections that the system holds until they are taken in."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """Pass it as ``uvicorn.Config(ws=SocketProtocol, **SETTINGS)``."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope = getattr(self, "scope", None)
        if scope is not None:
            scope["extensions"][ABORT] = self.transport.abort

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


def abort_of(scope: MutableMapping[str, Any]) -> Callable[[], None] | None:
    """The connection's abort, where the server offers one."""
    found: Callable[[], None] | None = (scope.get("extensions") or {}).get(ABORT)
    return found


def config(app: Any, **settings: Any) -> uvicorn.Config:
    """A server's configuration with this room's protocols in it."""
    ours = {"ws": SocketProtocol, "http": HttpProtocol, "ws_per_message_deflate": False}
    return uvicorn.Config(app, **{**ours, **SETTINGS, **settings})


class Server(uvicorn.Server):
    """A server that says goodbye: on SIGTERM or SIGINT it drains its conversations before it closes anything."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        config.backlog = ACCEPTED_AT_ONCE
        super().__init__(config)
        self._drain = drain

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for server in getattr(self, "servers", ()):  # none where the application did not start
            for listening in server.sockets:
                with listening.dup() as same:
                    same.listen(BACKLOG)  # what the system holds is no matter of how many are taken in at once

    async def shutdown(self, sockets: Any = None) -> None:
        if not self.force_exit:
            await self._drain()
        await super().shutdown(sockets)
