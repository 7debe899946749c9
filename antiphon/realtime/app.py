"""The Starlette application: every door on one pipeline, and the life of that pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Never

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from antiphon.pipelines.errors import ConfigError, PipelineError
from antiphon.realtime import client_secrets, refusals, seeing, websocket
from antiphon.realtime.doors import Doors, OpenEar
from antiphon.realtime.request_ids import HEADER, RequestIds
from antiphon.realtime.rest import chat, health, models, speech, transcriptions, voices
from antiphon.realtime.settings import Settings
from antiphon.realtime.state import Client, State
from antiphon.realtime.webrtc import calls
from antiphon.session.features import Features

log = logging.getLogger("antiphon.server")

EXPOSED = (HEADER, "Server-Timing", "Retry-After", "Location")
REST = (chat, speech, transcriptions, voices, models, health)


def create_app(
    settings: Settings,
    client_factory: Callable[[], Client],
    *,
    open_ear: OpenEar | None = None,
    features: Features | None = None,
    progress: Callable[[str], None] | None = None,
    on_started: Callable[[PipelineError | None], None] | None = None,
) -> Starlette:
    """The application. The doors are open at once and answer 503 until the pipeline is warm.

    ``open_ear`` and ``features`` are for conversations: see ``doors.Doors``; without ears /v1/realtime is not served.
    ``client_factory`` is called once, on the server's loop. ``progress`` gets each lane's name as it becomes ready.
    ``on_started`` is told None when all is warm, else what went wrong: a command line then ends with a message.
    """
    state = State(settings, client_factory)
    doors = Doors(state, open_ear or _deaf, features)

    async def start() -> None:
        error: PipelineError | None = None
        try:
            await state.start(progress)
        except PipelineError as failure:
            log.error("the pipeline did not start: %s", failure)
            error = failure
        except Exception as failure:
            # Boundary: whatever a factory raises must show in /health rather than leave the server starting for ever.
            log.exception("the pipeline did not start")
            error = state.failure = ConfigError(f"the pipeline did not start: {type(failure).__name__}")
        if on_started is not None:
            on_started(error)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        starting = asyncio.get_running_loop().create_task(start())
        try:
            yield
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await doors.drain()
            await state.stop()

    routes = [route for door in REST for route in door.routes(state)] + seeing.routes(doors)
    state.realtime = settings.realtime and open_ear is not None
    if state.realtime:
        routes += client_secrets.routes(doors) + websocket.routes(doors) + calls.routes(doors)
    if settings.web_demo is not None:
        routes.append(_Page("/", StaticFiles(directory=settings.web_demo, html=True)))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=("GET", "POST", "DELETE", "OPTIONS"),
                allow_headers=("*",),
                expose_headers=EXPOSED,
            ),
            Middleware(RequestIds),
        ],
        exception_handlers={HTTPException: refusals.on_http_exception, Exception: refusals.on_exception},
    )
    app.state.antiphon = state
    app.state.doors = doors
    return app


def _deaf(_: object) -> Never:
    raise ConfigError("this server was started without ears")


class _Page(Mount):
    """Static files that leave the API's paths and methods alone, so that those keep their own 404 and 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"].startswith("/v1/"):
            return Match.NONE, {}
        return super().matches(scope)
