"""``WS /v1/realtime``: a socket's frames in, the conversation's events out. Nothing here decides anything about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from antiphon.realtime.auth import Caller, presented
from antiphon.realtime.doors import Doors, Kind, new_id
from antiphon.realtime.errors import ProtocolError, RealtimeError, Stalled, TooMany, Unavailable
from antiphon.realtime.holdings import Holdings
from antiphon.realtime.outbox import Outbox
from antiphon.realtime.paths import both, doors_at
from antiphon.realtime.protocol import schema, wire
from antiphon.realtime.protocol.beta import Beta
from antiphon.realtime.protocol.fitting import fitting
from antiphon.realtime.protocol.media import check_media
from antiphon.realtime.protocol.schema import Dialect, Json
from antiphon.realtime.shell.finishing import Finisher
from antiphon.realtime.shell.runner import Shell
from antiphon.realtime.sockets import abort_of
from antiphon.realtime.webrtc import side
from antiphon.session import events as ev
from antiphon.session.errors import Refused

log = logging.getLogger("antiphon.realtime")

SUBPROTOCOL = "realtime"
BETA_PROTOCOL = "openai-beta.realtime-v1"
UNAUTHORIZED, TRY_AGAIN_LATER, POLICY, INTERNAL = 3000, 1013, 1008, 1011
"""Close codes: of the IANA registry."""


def routes(doors: Doors) -> list[BaseRoute]:
    async def endpoint(websocket: WebSocket) -> None:
        await serve(websocket, doors)

    path = "/v1/realtime"
    return [*(WebSocketRoute(p, endpoint) for p in both(path)), *doors_at(path, _not_an_upgrade, "GET")]


async def _not_an_upgrade(request: Request) -> Response:
    error = {"message": "Open a WebSocket here.", "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status_code=426, headers={"Upgrade": "websocket"})


async def serve(websocket: WebSocket, doors: Doors) -> None:
    """One connection, from the handshake to its last byte."""
    if not doors.origins.allows(websocket.headers.get("origin")):
        doors.state.metrics.refused.labels("origin").inc()
        await websocket.close(POLICY)  # before it is accepted: HTTP 403
        return
    offered: list[str] = websocket.scope.get("subprotocols") or []
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    try:
        caller = doors.state.keys.caller(presented(websocket.headers, offered), realtime=True)
        if call_id := websocket.query_params.get("call_id"):
            await side.serve(websocket, doors, caller, dialect_of(websocket.headers, offered), call_id)
            return
        with doors.state.admission.session(caller.id):
            await Connection(websocket, doors, caller, dialect_of(websocket.headers, offered)).run()
    except (RealtimeError, Refused) as e:
        doors.state.metrics.refused.labels(e.code or "none").inc()
        await _refuse(websocket, e)
    except WebSocketDisconnect:
        pass


async def _refuse(websocket: WebSocket, error: RealtimeError | Refused) -> None:
    """An ``error`` event and a close, which more clients understand than a refused upgrade."""
    told = error if isinstance(error, RealtimeError) else ProtocolError(str(error), code=error.code, param=error.param)
    event = {**wire.error_event(told), "event_id": new_id("event")}
    code = TRY_AGAIN_LATER if isinstance(told, TooMany | Unavailable) else UNAUTHORIZED if told.status == 401 else POLICY
    try:
        async with asyncio.timeout(5.0):
            await websocket.send_text(wire.encode(event))
            await websocket.close(code, str(told)[:120])
    except (WebSocketDisconnect, TimeoutError):
        if abort := abort_of(websocket.scope):
            abort()


def dialect_of(headers: Mapping[str, str], subprotocols: list[str]) -> Dialect:
    """Decided once per connection."""
    asked = headers.get("openai-beta", "").replace(" ", "").lower().split(",")  # one client's betas share the header
    return "beta" if "realtime=v1" in asked or BETA_PROTOCOL in subprotocols else "ga"


def kind_of(query: Mapping[str, str], carried: Mapping[str, Any] | None) -> Kind:
    """An intent in the URL wins over a model; an ephemeral key says what it was made for."""
    if carried is not None and carried.get("type") in ("realtime", "transcription"):
        return "transcription" if carried["type"] == "transcription" else "realtime"
    return "transcription" if query.get("intent") == "transcription" else "realtime"


class Connection:
    """A conversation on one socket: ``Door`` of its shell, and ``OpenSession`` of the server."""

    def __init__(self, websocket: WebSocket, doors: Doors, caller: Caller, dialect: Dialect) -> None:
        self._socket = websocket
        self._doors = doors
        self._caller = caller
        self._dialect = dialect
        self._beta = Beta() if dialect == "beta" else None
        self._outbox = Outbox()
        self._holdings = Holdings()
        carried = dict(caller.session) if caller.session else None
        query = websocket.query_params
        self._session = doors.session_object(kind_of(query, carried), query.get("model"), carried)
        self._pictures = doors.state.info.pictures
        self._shell: Shell | None = None
        self._finisher: Finisher | None = None

    # ---- OpenSession
    @property
    def id(self) -> str:
        return str(self._session["id"])

    @property
    def busy(self) -> bool:
        return self._shell is not None and self._shell.responding > 0

    # ---- Door
    def send(self, event: Json) -> None:
        assert self._finisher is not None
        if event["type"] in ("conversation.item.added", "conversation.item.deleted"):
            self._holdings.told(event["type"], event.get("item_id") or event["item"]["id"])
        for ready in self._finisher.finish(event):
            for told in self._beta.from_ga(ready) if self._beta else (ready,):
                self._outbox.put(fitting({"event_id": new_id("event"), **told}, wire.MAX_OUT))

    def play(self, sound: ev.Play) -> None:
        raise NotImplementedError("audio on a WebSocket goes by events")

    def clear_playback(self) -> None:
        raise NotImplementedError("a WebSocket's client clears its own playback")

    def hang_up(self, code: int, reason: str) -> None:
        self._outbox.close(code, reason)

    # ---- the socket
    async def run(self) -> None:
        """Until either side closes. The named boundary: what breaks here ends this connection only."""
        ending = "client"
        metrics = self._doors.state.metrics
        gauge = metrics.sessions_open.labels("websocket")
        gauge.inc()
        self._doors.sessions.add(self)
        trace = None
        try:
            async with asyncio.TaskGroup() as group:
                self._shell, trace = self._doors.conversation(
                    caller=self._caller,
                    session=self._session,
                    door=self,
                    transport="websocket",
                    spawn=lambda work: group.create_task(work),
                )
                self._finisher = Finisher(self._shell.store, lambda: self._shell_session(), new_id)
                writer = group.create_task(self._write())
                try:
                    self._shell.begin()
                    await self._read()
                finally:
                    self._shell.close()
                    writer.cancel()
        except* Exception as group_error:  # boundary: one connection's fault is its own
            ending = "broken"
            metrics.broken.inc()
            log.error("connection broke", exc_info=group_error, extra={"session": self.id})
            self._cut_off()
        finally:
            self._doors.sessions.remove(self)
            gauge.dec()
            ending = self._outbox.ending or ending
            metrics.sessions.labels("websocket", ending).inc()
            if trace is not None:
                self._doors.state.traces.close(trace, ending)

    def _shell_session(self) -> Json:
        assert self._shell is not None
        return self._shell.machine.config

    async def _read(self) -> None:
        while True:
            await self._outbox.room()
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            frame = message.get("text")
            await self._receive(frame if frame is not None else message.get("bytes") or b"")

    async def _receive(self, frame: str | bytes) -> None:
        shell = self._shell
        assert shell is not None
        event_id = None
        try:
            event = wire.parse(frame, self._dialect)
            event_id = schema.event_id_of(event)
            if event["type"] == "input_audio_buffer.append":
                await shell.hear(wire.audio_bytes(event["audio"], event_id=event_id))
                return
            event = self._beta.to_ga(event) if self._beta else event
            check_media(event, self._pictures)
            if event["type"] == "conversation.item.create":
                self._holdings.ask(len(frame), event_id)
        except ProtocolError as e:
            self._doors.state.metrics.error(e.code)
            self.send(wire.error_event(e, event_id))
        else:
            shell.feed(ev.Command(event))
            self._holdings.settle()

    async def _write(self) -> None:
        async def close(code: int, reason: str) -> None:
            await self._socket.close(code, reason)

        try:
            await self._outbox.run(self._socket.send_text, close)
        except Stalled as e:
            self._doors.state.metrics.stalled.inc()
            log.warning("a client does not read: %s", e, extra={"session": self.id})
            self._cut_off()
        except (WebSocketDisconnect, RuntimeError):
            # The peer is gone, or the close has crossed ours; the reader sees it too.
            return

    def _cut_off(self) -> None:
        if abort := abort_of(self._socket.scope):
            abort()
