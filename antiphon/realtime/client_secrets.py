"""Ephemeral keys for browsers: ``POST /v1/realtime/client_secrets`` and the beta's ``sessions`` and
``transcription_sessions``. A key carries a session's settings to every connection made with it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.realtime import refusals
from antiphon.realtime.auth import Caller, presented
from antiphon.realtime.doors import Doors, Kind
from antiphon.realtime.errors import ProtocolError, RealtimeError
from antiphon.realtime.paths import doors_at
from antiphon.realtime.protocol import beta, schema
from antiphon.realtime.protocol.schema import Json
from antiphon.session.errors import Refused

MAX_BODY = 1 << 20
GA_SECONDS, BETA_SECONDS = 600, 60
"""Lifetimes unless the caller asks for another."""


class Expiry(msgspec.Struct):
    """``created_at`` is the only anchor there is."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = GA_SECONDS


def routes(doors: Doors) -> list[BaseRoute]:
    """The three ways to mint a key; all need a normal one where keys are configured."""

    async def client_secrets(request: Request) -> Response:
        return await _answer(doors, request, _mint_ga)

    async def sessions(request: Request) -> Response:
        return await _answer(doors, request, _mint_beta)

    async def transcription_sessions(request: Request) -> Response:
        return await _answer(doors, request, _mint_beta_transcription)

    return [
        *doors_at("/v1/realtime/client_secrets", client_secrets, "POST"),
        *doors_at("/v1/realtime/sessions", sessions, "POST"),
        *doors_at("/v1/realtime/transcription_sessions", transcription_sessions, "POST"),
    ]


async def _answer(doors: Doors, request: Request, mint: Any) -> Response:
    try:
        caller = doors.state.keys.caller(presented(request.headers))
        body = await _body(request)
        return JSONResponse(mint(doors, caller, body))
    except (RealtimeError, Refused) as e:
        return refusal(e)


def refusal(error: RealtimeError | Refused) -> Response:
    """An error in the shape and with the status that REST clients know."""
    if isinstance(error, Refused):
        error = ProtocolError(str(error), code=error.code, param=error.param)
    return refusals.response(error)


async def _body(request: Request) -> Json:
    raw = b""
    async for piece in request.stream():
        raw += piece
        if len(raw) > MAX_BODY:
            raise ProtocolError("The body is larger than 1 MiB.", code="invalid_value")
    if not raw.strip():
        return {}
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ProtocolError("Could not parse the body as JSON.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise ProtocolError("Expected a JSON object.", code="invalid_value")
    return body


def _mint_ga(doors: Doors, caller: Caller, body: Json) -> Json:
    expiry = Expiry()
    if body.get("expires_after") is not None:
        try:
            expiry = msgspec.convert(body["expires_after"], Expiry)
        except msgspec.ValidationError as e:
            raise ProtocolError(f"Invalid 'expires_after': {e}.", code="invalid_value", param="expires_after") from None
    if not 10 <= expiry.seconds <= 7200:
        message = "Invalid 'expires_after.seconds': expected 10 to 7200."
        raise ProtocolError(message, code="invalid_value", param="expires_after.seconds")
    carried = schema.check_session(body["session"]) if body.get("session") is not None else {"type": "realtime"}
    session = _session(doors, carried)
    key = doors.state.keys.mint(caller, carried, expiry.seconds)
    return {"value": key.value, "expires_at": key.expires_at, "session": session}


def _mint_beta(doors: Doors, caller: Caller, body: Json, kind: Kind = "realtime") -> Json:
    flat = schema.check_session(body, "beta")
    carried = beta.session_to_ga(flat, kind=kind)
    session = _session(doors, carried)
    key = doors.state.keys.mint(caller, carried, BETA_SECONDS)
    secret = {"value": key.value, "expires_at": key.expires_at}
    return {**beta.session_from_ga(session), "client_secret": secret}


def _mint_beta_transcription(doors: Doors, caller: Caller, body: Json) -> Json:
    return _mint_beta(doors, caller, body, "transcription")


def _session(doors: Doors, carried: Json) -> Json:
    kind: Kind = "transcription" if carried.get("type") == "transcription" else "realtime"
    return doors.session_object(kind, None, carried)
