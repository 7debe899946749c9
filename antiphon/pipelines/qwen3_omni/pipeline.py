"""The declaration of Qwen3-Omni: the text pipeline (6 stages), the speech pipeline (8), and where they run.

    preprocessing -+-> audio_encoder -+-> mm_aggregate -> thinker -> decode      (text)
                   +-> image_encoder -+                        `--> talker_ar -> code2wav  (audio)
                   `------------------+

Which stages a request opens follows from the request: an encoder that it brings nothing for is never opened, and the
talker opens when the thinker has said its first token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from antiphon.pipelines.errors import ConfigError, Refused, WeightError
from antiphon.pipelines.graph import MAIN_PROCESS, PipelineConfig, StageConfig
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.qwen3_omni import params, payloads
from antiphon.pipelines.qwen3_omni.prompt_kinds import brings_audio, brings_pictures
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Request

Preset = Literal["cpu", "one_gpu", "two_gpus"]
_HERE = "antiphon.pipelines.qwen3_omni"
MAX_OPEN = 16
TEXT_CREDITS = 4096
"""A whole answer: the thinker never waits for the talker."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one stage runs."""

    process: str = MAIN_PROCESS
    lane: str = "omni"
    gpu: tuple[int, ...] = ()

    @property
    def device(self) -> str:
        return f"cuda:{self.gpu[0]}" if self.gpu else "cpu"


_MEDIA = Spot(lane="media")
_GPU_STAGES = ("image_encoder", "audio_encoder", "mm_aggregate", "thinker", "decode")
PRESETS: Mapping[Preset, Mapping[str, Spot]] = {
    # Two torch lanes on few cores are slower than one: everything but decoding of media shares a lane.
    "cpu": {"preprocessing": _MEDIA},
    "one_gpu": {
        "preprocessing": _MEDIA,
        **{name: Spot("thinker", "thinker", (0,)) for name in _GPU_STAGES},
        "talker_ar": Spot("voice", "voice", (0,)),
        "code2wav": Spot("voice", "voice", (0,)),
    },
    "two_gpus": {
        "preprocessing": _MEDIA,
        **{name: Spot("thinker", "thinker", (0,)) for name in _GPU_STAGES},
        "talker_ar": Spot("voice", "voice", (1,)),
        "code2wav": Spot("voice", "voice", (1,)),
    },
}
"""Where the stages run: all on CPU; one GPU, thinker and voice in separate processes; thinker and voice on a GPU each."""


def build(
    folder: str,
    *,
    speech: bool = True,
    preset: Preset = "cpu",
    name: str = "qwen3-omni",
    stage_args: Mapping[str, Mapping[str, Any]] | None = None,
) -> PipelineConfig:
    """The pipeline over the checkpoint in ``folder``. ``stage_args`` adds factory arguments to stages by name.

    Raises WeightError for a folder that is no Qwen3-Omni checkpoint, ConfigError for an unknown preset or stage name.
    Nothing heavy is imported and no weight is read here.
    """
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r} is not one of {', '.join(PRESETS)}")
    voices = speakers(folder) if speech else ()
    stages = [_placed(stage, PRESETS[preset].get(stage.name, Spot()), folder) for stage in _stages(speech)]
    extra = dict(stage_args or {})
    if unknown := sorted(extra.keys() - {s.name for s in stages}):
        raise ConfigError(f"stage_args names an unknown stage {unknown[0]!r}")
    stages = [replace(s, factory_args={**s.factory_args, **extra.get(s.name, {})}) for s in stages]
    terminals = ("text", "audio") if speech else ("text",)
    info = PipelineInfo(
        name=name,
        model=Path(folder).name,
        models={"thinker": Path(folder).name, **({"talker": Path(folder).name} if speech else {})},
        terminals={"chat": terminals},
        inputs={"chat": ("text", "audio", "image", "video")},
        voices=voices,
        languages=("en", "zh", "fr", "de", "ru", "it", "es", "pt", "ja", "ko") if speech else (),
        early_responses=True,
        context_tokens=8192,
        notes=("not verified on a GPU", "real weights were never run here: checked on a random model of the same layout"),
    )
    return PipelineConfig(name, "preprocessing", stages, info=info, check=Check(voices))


def speakers(folder: str) -> tuple[str, ...]:
    """The checkpoint's voices; Ethan first where there is one, as in the reference implementation."""
    try:
        talker = json.loads((Path(folder) / "config.json").read_text())["talker_config"]
        names = [str(name) for name in talker["speaker_id"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightError(f"{folder!r} holds no config.json with a talker that has speakers") from error
    return tuple(sorted(names, key=lambda name: name != "ethan"))


class Check:
    """Refuses at submit what no stage should see."""

    def __init__(self, voices: Sequence[str]) -> None:
        self.voices = tuple(voices)

    def __call__(self, request: Request) -> None:
        body: GenerateRequest = request.body
        if body.task != "chat":
            raise Refused(f"this pipeline does not serve {body.task}", code="unsupported_value")
        if request.kind != "generate":
            raise Refused("this pipeline prepares nothing ahead", code="unsupported_value")
        if body.tools and body.tool_choice.mode != "none":
            raise Refused("tools are not supported by this pipeline", code="unsupported_value", param="tools")
        if body.response_format.kind != "text":
            raise Refused(
                f"response_format {body.response_format.kind} is not supported by this pipeline",
                code="unsupported_value",
                param="response_format",
            )
        params.check_stage_params(body)
        if "audio" in request.terminals:
            if body.voice.speed != 1.0:
                raise Refused("speed is not supported by this model's voice", code="unsupported_value", param="speed")
            params.speaker(body, self.voices)
            params.chunking(body, params.FIRST_CHUNK_FRAMES, params.CHUNK_FRAMES)


def entry_route(request: Request) -> tuple[str, ...]:
    """The encoders that this request brings something for, and the aggregate."""
    route = ["mm_aggregate"]
    if brings_audio(request.body):
        route.append("audio_encoder")
    if brings_pictures(request.body):
        route.append("image_encoder")
    return tuple(route)


def merge(request: Request, results: Mapping[str, Any]) -> Any:
    """Imported late: the aggregate's module imports torch, a declaration must not."""
    from antiphon.pipelines.qwen3_omni.aggregate import merge as merged

    return merged(request, results)


def _stages(speech: bool) -> list[StageConfig]:
    thinker_to = ("decode", "talker_ar") if speech else ("decode",)
    common: dict[str, Any] = {"max_open": MAX_OPEN, "max_batch": MAX_OPEN}
    stages = [
        StageConfig(
            name="preprocessing",
            factory=f"{_HERE}.preprocessing:Preprocessing",
            next=("audio_encoder", "image_encoder", "mm_aggregate"),
            route_fn=entry_route,
            project_payload={
                "audio_encoder": payloads.speech_only,
                "image_encoder": payloads.pictures_only,
                "mm_aggregate": payloads.without_media,
            },
            max_open=MAX_OPEN,
        ),
        StageConfig(name="audio_encoder", factory=f"{_HERE}.encoders:AudioEncoder", next=("mm_aggregate",), **common),
        StageConfig(name="image_encoder", factory=f"{_HERE}.encoders:ImageEncoder", next=("mm_aggregate",), **common),
        StageConfig(name="mm_aggregate", factory=f"{_HERE}.aggregate:Aggregate", next=("thinker",), merge_fn=merge, **common),
        StageConfig(
            name="thinker",
            factory=f"{_HERE}.thinker:Thinker",
            stream_to=thinker_to,
            project_payload={"decode": payloads.without_prompt},
            credits=TEXT_CREDITS,
            **common,
        ),
        StageConfig(name="decode", factory=f"{_HERE}.decode:Decode", terminal="text", credits=TEXT_CREDITS, **common),
    ]
    if speech:
        stages += [
            StageConfig(
                name="talker_ar",
                factory=f"{_HERE}.talker:Talker",
                stream_to=("code2wav",),
                start_on={"thinker": 1},
                credits=32,
                **common,
            ),
            StageConfig(name="code2wav", factory=f"{_HERE}.code2wav:Code2Wav", terminal="audio", credits=8, **common),
        ]
    return stages


_PLAIN = frozenset(("preprocessing", "mm_aggregate", "decode"))
"""Stages that hold no weights."""


def _placed(stage: StageConfig, spot: Spot, folder: str) -> StageConfig:
    args: dict[str, Any] = {"folder": folder}
    if stage.name not in _PLAIN:
        args["device"] = spot.device
    gpu = () if stage.name in _PLAIN else spot.gpu
    return replace(stage, factory_args=args, process=spot.process, lane=spot.lane, gpu=gpu)
