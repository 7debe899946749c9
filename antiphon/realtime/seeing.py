"""Seeing what the server does: ``/metrics``, and each session's timeline.

The timelines need a key where keys are configured. Counts need none: they hold no words and name no caller, and what gathers
them comes from inside.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.realtime.auth import ANONYMOUS, presented
from antiphon.realtime.client_secrets import refusal
from antiphon.realtime.doors import Doors
from antiphon.realtime.errors import RealtimeError
from antiphon.realtime.metrics import CONTENT_TYPE
from antiphon.realtime.paths import doors_at


def routes(doors: Doors) -> list[BaseRoute]:
    """A caller sees the sessions of its own key; without keys everyone sees all."""

    def whose(request: Request) -> str | None:
        caller = doors.state.keys.caller(presented(request.headers))
        return None if caller == ANONYMOUS else caller.id

    async def metrics(request: Request) -> Response:
        return Response(doors.state.metrics.text(), media_type=CONTENT_TYPE)

    async def sessions(request: Request) -> Response:
        try:
            caller = whose(request)
        except RealtimeError as e:
            return refusal(e)
        return JSONResponse({"object": "list", "data": doors.state.traces.list(caller)})

    async def trace(request: Request) -> Response:
        try:
            found = doors.state.traces.get(request.path_params["session_id"], whose(request))
        except RealtimeError as e:
            return refusal(e)
        if found is None:
            error = {"message": "No such session.", "type": "invalid_request_error", "param": None, "code": "not_found"}
            return JSONResponse({"error": error}, status_code=404)
        return JSONResponse(found.as_json())

    return [
        *doors_at("/metrics", metrics, "GET"),
        *doors_at("/v1/realtime/sessions", sessions, "GET"),
        *doors_at("/v1/realtime/sessions/{session_id}/trace", trace, "GET"),
    ]
