"""``GET /v1/models`` and ``/v1/models/{id}``: what runs here, and what it can do."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from antiphon.pipelines.info import PipelineInfo
from antiphon.realtime.errors import NotFound
from antiphon.realtime.rest.endpoint import Call, route
from antiphon.realtime.state import State

_ENDPOINTS: Final = {
    "chat": ("/v1/chat/completions",),
    "speech": ("/v1/audio/speech", "/v1/audio/voices"),
    "transcription": ("/v1/audio/transcriptions", "/v1/audio/translations"),
}


def routes(state: State) -> list[BaseRoute]:
    return [*route(state, "/v1/models", _list), *route(state, "/v1/models/{id:path}", _one)]


async def _list(call: Call) -> Response:
    return JSONResponse({"object": "list", "data": described(call.state)})


async def _one(call: Call) -> Response:
    wanted = call.request.path_params["id"]
    for model in described(call.state):
        if model["id"] == wanted:
            return JSONResponse(model)
    raise NotFound(f"The model '{wanted[:64]}' does not exist.", code="model_not_found", param="model")


def described(state: State) -> list[dict[str, Any]]:
    """The pipeline first, with all it can do; then the models in its roles."""
    info = state.info
    whole = {**_model(state, info.model), **_abilities(info, realtime=state.realtime)}
    roles = [
        {**_model(state, name), "role": role, "part_of": info.model}
        for role, name in info.models.items()
        if name and name != info.model
    ]
    return [whole, *{model["id"]: model for model in roles}.values()]


def _model(state: State, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": state.started_at, "owned_by": "antiphon"}


def _abilities(info: PipelineInfo, *, realtime: bool) -> dict[str, Any]:
    endpoints = [path for task in info.terminals for path in _ENDPOINTS[task]]
    if realtime and "chat" in info.terminals:
        endpoints.append("/v1/realtime")
    return {
        "pipeline": info.name,
        "models": info.models,
        "inputs": {task: list(media) for task, media in info.inputs.items()},
        "terminals": {task: list(made) for task, made in info.terminals.items()},
        "endpoints": endpoints,
        "voices": list(info.voices),
        "languages": list(info.languages),
        "context_tokens": info.context_tokens,
        "notes": list(info.notes),
    }
