"""``GET /health``: ready means warm. 200 only while every stage has run once and every lane lives; needs no key."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.state import State


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/health", _health, public=True)]


async def _health(call: Call) -> Response:
    told = call.state.health()
    ready = told["status"] == "ready"
    return JSONResponse(told, status_code=200 if ready else 503, headers={} if ready else {"Retry-After": "2"})
