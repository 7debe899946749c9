"""The HTTP server's own protocol: an answer whose client does not read can be dropped at once.

``uvicorn`` ends an unfinished answer by flushing it first, which a peer that never reads turns into for ever.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

ABORT = "antiphon.abort"
"""Key in ``scope["extensions"]``, as in ``sockets``: a function that drops the connection and all that was not sent."""


class HttpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Pass it as ``uvicorn.Config(http=HttpProtocol)``."""

    app: ASGIApp

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        app: ASGIApp = self.app
        self.app = _with_abort(app, transport)


def _with_abort(app: ASGIApp, transport: asyncio.Transport) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[ABORT] = transport.abort
        await app(scope, receive, send)

    return wrapped
