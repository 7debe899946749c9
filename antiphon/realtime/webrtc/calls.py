"""``POST /v1/realtime/calls``: an offer in, an answer and the call's address out. And hanging up.

The beta's address, ``POST /v1/realtime?model=``, begins a call in the beta dialect.
"""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from antiphon.realtime.auth import ANONYMOUS, presented
from antiphon.realtime.client_secrets import refusal
from antiphon.realtime.doors import Doors, Kind
from antiphon.realtime.errors import BadRequest, NotFound, RealtimeError
from antiphon.realtime.paths import doors_at
from antiphon.realtime.protocol.schema import Dialect, Json
from antiphon.realtime.webrtc import offer as offers
from antiphon.session.config import merged
from antiphon.session.errors import Refused


class NotInstalled(BadRequest):
    """The extra is missing."""

    status = 501


class Forbidden(RealtimeError):
    """A browser's origin that may not call."""

    status = 403


def routes(doors: Doors) -> list[BaseRoute]:
    """All three ways to POST; without aiortc they answer 501 and name the extra."""

    async def ga(request: Request) -> Response:
        return await _answered(request, doors, "ga")

    async def beta(request: Request) -> Response:
        return await _answered(request, doors, "beta")

    async def hangup(request: Request) -> Response:
        try:
            _hang_up(request, doors)
        except RealtimeError as error:
            return refusal(error)
        return Response()

    return [
        *doors_at("/v1/realtime/calls", ga, "POST"),
        *doors_at("/v1/realtime", beta, "POST"),
        *doors_at("/v1/realtime/calls/{call_id}/hangup", hangup, "POST"),
    ]


async def _answered(request: Request, doors: Doors, dialect: Dialect) -> Response:
    try:
        return await _call(request, doors, dialect)
    except (RealtimeError, Refused) as error:
        doors.state.metrics.refused.labels(error.code or "none").inc()
        return refusal(error)


async def _call(request: Request, doors: Doors, dialect: Dialect) -> Response:
    if not doors.origins.allows(request.headers.get("origin")):
        raise Forbidden("Calls from this origin are not allowed.", code="origin_not_allowed")
    caller = doors.state.keys.caller(presented(request.headers), realtime=True)
    if importlib.util.find_spec("aiortc") is None:
        raise NotInstalled("This server has no WebRTC: pip install 'antiphon[webrtc]'.", code="webrtc_not_installed")
    from antiphon.realtime.webrtc.call import Call

    sdp, given = await offers.read(request)
    session = _session(doors, request.query_params.get("model"), dict(caller.session or {}), given or {})
    with ExitStack() as admitted:
        admitted.enter_context(doors.state.admission.session(caller.id))
        call = Call(doors, caller, session, dialect)
        try:
            answer = await call.answer(sdp)
        except BaseException:
            await call.abandon()
            raise
        place = admitted.pop_all()

    async def run() -> None:
        with place:
            await call.run()

    doors.state.spawn(run())
    headers = {"Location": f"/v1/realtime/calls/{call.id}"}
    return Response(answer, status_code=201, media_type="application/sdp", headers=headers)


def _session(doors: Doors, model: str | None, carried: Json, given: Json) -> Json:
    """The key's settings, and the call's own laid over them."""
    kind: Kind = "transcription" if "transcription" in (carried.get("type"), given.get("type")) else "realtime"
    session = doors.session_object(kind, model or given.get("model"), {"type": kind, **carried})
    return merged(session, {"type": kind, **given}, doors.features()) if given else session


def _hang_up(request: Request, doors: Doors) -> None:
    caller = doors.state.keys.caller(presented(request.headers), realtime=True)
    found = doors.sessions.get(request.path_params["call_id"])
    owner = getattr(found, "caller", None)
    if found is None or owner is None or (caller != ANONYMOUS and caller.id != owner.id):
        raise NotFound("No call with this id is open.", code="call_not_found", param="call_id")
    found.hang_up(1000, "hung up")
