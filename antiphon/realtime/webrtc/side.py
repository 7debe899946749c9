"""The side channel of a call: ``GET /v1/realtime?call_id=`` joins its conversation over a WebSocket.

It is told every event of the call and may send any, but for audio. Leaving it does not end the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from antiphon.realtime.auth import ANONYMOUS, Caller
from antiphon.realtime.doors import Doors, new_id
from antiphon.realtime.errors import NotFound, Stalled
from antiphon.realtime.outbox import Outbox
from antiphon.realtime.protocol import wire
from antiphon.realtime.protocol.beta import Beta
from antiphon.realtime.protocol.fitting import fitting
from antiphon.realtime.protocol.schema import Dialect, Json
from antiphon.realtime.sockets import abort_of

GOING_AWAY = 1001


class Joinable(Protocol):
    """``webrtc.call.Call``, without importing aiortc."""

    caller: Caller

    @property
    def config(self) -> Json: ...

    def join(self, listener: Any) -> Any: ...

    def receive(self, message: Any, dialect: Dialect, beta: Any, refuse: Any) -> None: ...


async def serve(websocket: WebSocket, doors: Doors, caller: Caller, dialect: Dialect, call_id: str) -> None:
    """From an accepted socket to its end, or to the call's. Raises ``NotFound`` for a call that is not there or another's."""
    found: Any = doors.sessions.get(call_id)
    if not hasattr(found, "join") or (caller != ANONYMOUS and caller.id != found.caller.id):
        raise NotFound(f"No call with the id '{call_id[:64]}' is open.", code="call_not_found", param="call_id")
    await SideChannel(websocket, found, dialect).run()


class SideChannel:
    """One socket beside a call."""

    def __init__(self, websocket: WebSocket, call: Joinable, dialect: Dialect) -> None:
        self._socket = websocket
        self._call = call
        self._dialect: Dialect = dialect
        self._beta = Beta() if dialect == "beta" else None
        self._outbox = Outbox()

    async def run(self) -> None:
        leave = self._call.join(self._told)
        self._told({"type": "session.created", "session": self._call.config})
        writer = asyncio.ensure_future(self._write())
        reader = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leave()
            for task in (writer, reader):
                task.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)

    def _told(self, event: Json | None) -> None:
        """A GA event of the call; None: the call has ended."""
        if event is None:
            self._outbox.close(GOING_AWAY, "The call has ended.")
            return
        for ready in self._beta.from_ga(event) if self._beta else (event,):
            self._outbox.put(fitting({"event_id": new_id("event"), **ready}, wire.MAX_OUT))

    async def _read(self) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await self._outbox.room()
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                frame = message.get("text")
                frame = frame if frame is not None else message.get("bytes") or b""
                self._call.receive(frame, self._dialect, self._beta, self._told)

    async def _write(self) -> None:
        async def close(code: int, reason: str) -> None:
            await self._socket.close(code, reason)

        try:
            await self._outbox.run(self._socket.send_text, close)
        except Stalled:
            if abort := abort_of(self._socket.scope):
                abort()
        except (WebSocketDisconnect, RuntimeError):
            return  # the peer is gone; the reader sees it too
