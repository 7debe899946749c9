"""``GET /health``: ready means warm. 200 only while every stage has run once and every lane lives; needs no key."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.state import State

_PATH = re.compile(r"(?<![\w.:/~-])~?/(?:[^\s'\":,;()/]+/)+")
"""The folders of a path on this machine."""


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/health", _health, public=True)]


async def _health(call: Call) -> Response:
    told = without_folders(call.state.health())
    ready = told["status"] == "ready"
    return JSONResponse(told, status_code=200 if ready else 503, headers={} if ready else {"Retry-After": "2"})


def without_folders(told: Any) -> Any:
    """What went wrong is told to anybody, and where this machine keeps its files only to the log."""
    if isinstance(told, str):
        return _PATH.sub(".../", told)
    if isinstance(told, dict):
        return {key: without_folders(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [without_folders(value) for value in told]
    return told
