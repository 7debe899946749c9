"""A response whose bytes leave as they are made, and whose making ends when the client hangs up or stops reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antiphon.realtime import refusals
from antiphon.realtime.errors import ClientGone
from antiphon.realtime.presence import Presence
from antiphon.realtime.rest.work import Work
from antiphon.realtime.sockets import abort_of

log = logging.getLogger("antiphon.rest")


class LiveResponse(Response):
    """``pieces`` and ``work`` are closed at every end. When the pieces raise after the first byte, the connection is cut:
    a raw audio stream has no other way to say that it is not whole."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        work: Work,
        presence: Presence,
        *,
        media_type: str,
        send_timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self._pieces = pieces
        self._work = work
        self._presence = presence
        self._send_timeout_s = send_timeout_s
        self.init_headers(headers)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._presence.unless_gone(self._write(send))
        except TimeoutError:
            log.warning("a client does not read", extra={"request_id": scope.get("state", {}).get("request_id")})
            if abort := abort_of(scope):
                abort()
        except ClientGone:
            log.info("the client left before the end", extra={"request_id": scope.get("state", {}).get("request_id")})
        except refusals.KNOWN as error:
            told = refusals.describe(error)
            log.warning("a stream broke off: %s", told.code, extra={"request_id": scope.get("state", {}).get("request_id")})
        finally:
            await self._pieces.aclose()
            await self._work.close()
            await self._presence.close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for piece in self._pieces:
            if piece:
                async with asyncio.timeout(self._send_timeout_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
