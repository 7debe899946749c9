"""``GET /v1/audio/voices``, and what a voice's name in a request means."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import Voice
from antiphon.realtime.errors import BadRequest
from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.rest.fields import invalid, missing
from antiphon.realtime.state import State

OPENAI_VOICES: Final = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""Names that clients send by default. Where the pipeline has no such voice they mean its first one."""

MIN_SPEED, MAX_SPEED = 0.25, 4.0


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/audio/voices", _list)]


async def _list(call: Call) -> Response:
    info = call.state.info
    voices = [
        {"id": name, "object": "voice", "name": name, "default": n == 0, "languages": list(info.languages)}
        for n, name in enumerate(info.voices)
    ]
    return JSONResponse({"object": "list", "data": voices, "voices": list(info.voices)})


def choose(info: PipelineInfo, voice: Any, param: str, *, speed: float | None = None, language: str = "") -> Voice:
    """The voice that a request names, a string or ``{id}``. Raises ``BadRequest`` for one that is not there."""
    if isinstance(voice, dict):
        voice, param = voice.get("id"), f"{param}.id"
    if voice is None:
        raise missing(param)
    if not isinstance(voice, str):
        raise invalid(param, "expected a string, or an object with an 'id'", "invalid_type")
    if speed is not None and not MIN_SPEED <= speed <= MAX_SPEED:
        raise invalid("speed", f"expected a number from {MIN_SPEED} to {MAX_SPEED:g}")
    name = info.voice(voice) or "default"
    if name == "default" and voice.lower() not in ("default", *OPENAI_VOICES):
        known = ", ".join(info.voices) or "default"
        raise BadRequest(f"Unknown voice '{voice[:64]}'. Voices: {known}.", code="invalid_value", param=param)
    return Voice(name=name, speed=1.0 if speed is None else speed, language=language)
