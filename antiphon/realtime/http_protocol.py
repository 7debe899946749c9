"""The HTTP server's own protocol: what an open connection may cost, and how what is no HTTP is answered.

``uvicorn`` keeps a connection that never asks anything for ever, takes in as many as there are descriptors (after which
neither a caller nor a model's process that starts again gets one), and ends an unfinished answer by flushing it first,
which a peer that never reads turns into for ever. It reads with ``h11`` whatever else is installed: ``httptools`` sets no
bound to a request's head.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
import weakref
from http import HTTPStatus
from typing import Any, ClassVar

import h11
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from antiphon.realtime import refusals
from antiphon.realtime.errors import BadRequest, RealtimeError, Unavailable

log = logging.getLogger("antiphon.server")

ABORT = "antiphon.abort"
"""Key in ``scope["extensions"]``, as in ``sockets``: a function that drops the connection and all that was not sent."""
SILENCE_S = 30.0
"""Who has a request still to ask, or the rest of one to send, and is silent for twice as long, is gone."""
SAY_EVERY_S = 60.0
COUNT_EVERY_S = 10.0
LINGER_S = 1.0
"""Who is turned away may still be sending: a connection that is closed upon him breaks off before he has read why."""


def room() -> int:
    """Descriptors that connections may take, with what the server holds already: a quarter of all stays free for the models'
    processes, calls and files."""
    if sys.platform == "win32":
        return 1 << 16
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft - soft // 4


def in_use() -> int:
    """Descriptors that are open. Its cost grows with them."""
    return len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0


class HttpProtocol(H11Protocol):
    """Pass it as ``uvicorn.Config(http=HttpProtocol)``."""

    app: ASGIApp
    said_at = -SAY_EVERY_S
    counted_at = -COUNT_EVERY_S
    own = 0
    """Descriptors that are no connections, when they were counted last."""
    shaking: ClassVar[weakref.WeakSet[HttpProtocol]] = weakref.WeakSet()
    """Connections that are not made yet: with TLS a peer may stay so for a minute, holding a descriptor. Also what is left
    of some that never were, until it is collected: past the room the descriptors themselves are counted."""
    turned_away: ClassVar[set[HttpProtocol]] = set()
    """Those that linger, a few at once: a flood is dropped."""
    _came = 0
    _looking: asyncio.TimerHandle

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        if self.config.is_ssl and len(self.connections) + len(self.shaking) >= room() and in_use() >= room():
            self._say_full()
            raise ConnectionRefusedError  # asyncio drops the connection; nothing can be said before the handshake
        self.shaking.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.shaking.discard(self)
        # asyncio does so only for sockets that were made for TCP by number. Without it the second of two small writes waits for
        # the peer to acknowledge the first, which takes him 40 ms when he has nothing to send.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        app: ASGIApp = self.app
        self.app = _with_abort(app, transport)
        self._look_later()
        now = time.monotonic()
        if now - HttpProtocol.counted_at >= COUNT_EVERY_S:
            HttpProtocol.counted_at = now
            HttpProtocol.own = max(0, in_use() - len(self.connections) - len(self.shaking))
        if len(self.connections) > room() - self.own:
            self._full(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.turned_away.discard(self)
        self._looking.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._looking.cancel()  # it is another protocol's from here
        super().handle_websocket_upgrade(event)

    def data_received(self, data: bytes) -> None:
        if self in self.turned_away:
            return
        self._came += len(data)
        super().data_received(data)

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(SILENCE_S, self._look, self.cycle, self._came)

    def _look(self, cycle: Any, came: int) -> None:
        """``cycle`` and ``came``: the request and the bytes at the last look."""
        asked = cycle is not None and not cycle.response_complete
        waiting = self.flow.read_paused or (asked and not cycle.more_body)
        if self.cycle is cycle and self._came == came and not waiting:
            self.transport.abort()
            return
        self._look_later()

    def _full(self, transport: asyncio.Transport) -> None:
        """Said before anything is read, and the connection ends; it counts no more."""
        self._say_full()
        self.connections.discard(self)
        transport.write(
            _last_word(Unavailable("The server has no room for more connections.", code="server_busy", retry_after_s=5.0))
        )
        if transport.can_write_eof() and len(self.turned_away) <= room() // 16:
            self.turned_away.add(self)
            transport.write_eof()
            self.loop.call_later(LINGER_S, transport.abort)
        else:
            transport.close()

    def send_400_response(self, msg: str) -> None:
        """``msg`` is the same whatever was wrong. In the midst of an answer, or behind one, nothing can be said any more."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        self.transport.write(_last_word(BadRequest("This is no HTTP request, or its head is too large.", code="invalid_http")))
        self.transport.close()

    def _say_full(self) -> None:
        if time.monotonic() - HttpProtocol.said_at >= SAY_EVERY_S:
            HttpProtocol.said_at = time.monotonic()
            count = len(self.connections)
            log.warning("%d connections are open, as many as there is room for: more are turned away", count)


def _last_word(error: RealtimeError) -> bytes:
    """A whole answer, after which the connection ends."""
    told = refusals.describe(error)
    body = msgspec.json.encode(told.body)
    head = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **told.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {told.status} {HTTPStatus(told.status).phrase}\r\n{lines}\r\n".encode() + body


def _with_abort(app: ASGIApp, transport: asyncio.Transport) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[ABORT] = transport.abort
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:  # by the server that ends: a peer that did not read its answer
            log.info("an answer was cut off: the server ends")
            transport.abort()
            await asyncio.sleep(0)  # the connection is told that it is lost

    return wrapped
