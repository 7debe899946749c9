"""What every REST door does before and after its own work: keys, limits, the body, errors in one shape, the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.info import Task as GraphTask
from antiphon.pipelines.requests import GenerateRequest
from antiphon.realtime import refusals
from antiphon.realtime.auth import ANONYMOUS, Caller, presented
from antiphon.realtime.errors import ClientGone, NotServed
from antiphon.realtime.paths import doors_at
from antiphon.realtime.presence import Presence
from antiphon.realtime.request_ids import checked
from antiphon.realtime.rest import body, fields, sse, timing
from antiphon.realtime.rest.live import LiveResponse
from antiphon.realtime.rest.off_loop import off_loop
from antiphon.realtime.rest.work import Work
from antiphon.realtime.state import State

log = logging.getLogger("antiphon.rest")

T = TypeVar("T")
Handler = Callable[["Call"], Awaitable[Response]]


class Call:
    """One HTTP request at a door."""

    def __init__(self, state: State, request: Request) -> None:
        self.state = state
        self.request = request
        self.caller: Caller = ANONYMOUS
        self.size = 0
        self._presence: Presence | None = None
        self._work: Work | None = None

    @property
    def id(self) -> str:
        """The request id: of the graph's request, of every log line, of the answer's header."""
        return str(self.request.scope["state"]["request_id"])

    @property
    def wants_timing(self) -> bool:
        return self.request.headers.get(timing.ASKED_BY, "").strip().lower() in ("1", "true", "yes")

    def name(self, request_id: str | None, param: str = "request_id") -> None:
        """Take the id that stands in the body. Raises ``BadRequest``."""
        if request_id:
            self.request.scope["state"]["request_id"] = checked(request_id, param)

    async def json(self, shape: type[T]) -> T:
        """The body as ``shape``."""
        data = await body.read(self.request, self.state.settings.max_body_bytes)
        self.size = len(data)
        content_type = self.request.headers.get("content-type", "")
        return await off_loop(self.size, lambda: fields.parse(data, shape, content_type))

    async def form(self) -> FormData:
        return await body.read_form(self.request, self.state.settings.max_upload_bytes)

    def require(self, task: GraphTask, *terminals: str) -> PipelineInfo:
        """The pipeline, known to make these terminals for ``task``. Raises ``NotServed`` by name, ``Unavailable``."""
        info = self.state.info
        made = info.terminals.get(task)
        if not made:
            does = ", ".join(sorted(info.terminals)) or "nothing"
            raise NotServed(f"The running pipeline '{info.name}' does not serve {task}; it serves {does}.")
        for terminal in terminals:
            if terminal not in made:
                raise NotServed(
                    f"The running pipeline '{info.name}' gives no {terminal} for {task}; it gives {', '.join(made)}."
                )
        return info

    def work(self, request: GenerateRequest) -> Work:
        """Hand a request to the graph. Raises ``TooMany``, ``Busy``, ``Refused``."""
        self.state.admission.response(self.caller.id)
        self._work = Work(self.state, request)
        return self._work

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``Presence.unless_gone``; the body must have been read."""
        if self._presence is None:
            self._presence = Presence(self.request.receive)
        return await self._presence.unless_gone(work)

    async def timed(self, response: Response, work: Work) -> Response:
        """Add Server-Timing to an answer in one piece, if it was asked for."""
        if self.wants_timing:
            await work.settled()
            response.headers["Server-Timing"] = timing.server_timing(work.timeline)
        return response

    def live(self, pieces: AsyncGenerator[bytes, None], work: Work, media_type: str) -> LiveResponse:
        """An answer that leaves as it is made. The work, and the watch over the client, are its own from here on.

        Timing that was asked for can only be what is known by now: headers come first.
        """
        headers = {"Server-Timing": timing.server_timing(work.timeline)} if self.wants_timing else {}
        return self._live(pieces, work, media_type, headers)

    def live_events(
        self, events: AsyncGenerator[dict[str, Any], None], work: Work, *, ends_with: bytes = sse.DONE
    ) -> LiveResponse:
        """An answer as server-sent events. What goes wrong on the way becomes the last event."""
        return self._live(self._told(events, work, ends_with), work, sse.MEDIA_TYPE, sse.HEADERS)

    async def _told(
        self, events: AsyncGenerator[dict[str, Any], None], work: Work, ends_with: bytes
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield sse.event(event)
        except refusals.KNOWN as error:
            told = refusals.describe(error)
            log.warning("a stream broke off: %s", told.code, extra={"request_id": self.id})
            self.state.metrics.error(told.code)
            yield sse.event(told.body)
            return
        if self.wants_timing:
            await work.settled()
            yield sse.comment(f"timing {timing.server_timing(work.timeline)}")
        yield ends_with

    def _live(
        self, pieces: AsyncGenerator[bytes, None], work: Work, media_type: str, headers: Mapping[str, str]
    ) -> LiveResponse:
        presence, self._presence = self._presence or Presence(self.request.receive), None
        self._work = None
        timeout = self.state.settings.send_timeout_s
        return LiveResponse(pieces, work, presence, media_type=media_type, headers=headers, send_timeout_s=timeout)

    async def close(self) -> None:
        """End what the call still owns: its generation, its watch over the client."""
        if self._work is not None:
            await self._work.close()
        if self._presence is not None:
            await self._presence.close()


class Endpoint:
    """A door as an ASGI application."""

    def __init__(self, state: State, handler: Handler, *, public: bool = False) -> None:
        self._state = state
        self._handler = handler
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(self._state, Request(scope, receive))
        try:
            response = await self._answer(call)
        except ClientGone:
            log.info("the client left before the answer", extra={"request_id": call.id})
            return
        finally:
            await call.close()
        await response(scope, receive, send)

    async def _answer(self, call: Call) -> Response:
        try:
            if not self._public:
                call.caller = self._state.keys.caller(presented(call.request.headers))
            return await self._handler(call)
        except ClientGone:
            raise
        except refusals.KNOWN as error:
            told = refusals.describe(error)
            log.info("refused %d %s", told.status, told.code, extra={"request_id": call.id, "param": told.param})
            self._state.metrics.error(told.code)
            return refusals.response(error)
        except Exception as error:
            # Boundary: one request's fault is told in the shape and ends there; the log gets the traceback.
            log.exception("a door broke", extra={"request_id": call.id})
            self._state.metrics.error("internal")
            return refusals.response(error)


def route(state: State, path: str, handler: Handler, *, method: str = "GET", public: bool = False) -> list[Route]:
    """The door at ``path``, with and without the version in front of it: base URLs are given either way."""
    return doors_at(path, Endpoint(state, handler, public=public), method)
