"""The declaration of Qwen3-Omni: the text pipeline (6 stages), the speech pipeline (8), and where they run.

    preprocessing -+-> audio_encoder -+-> mm_aggregate -> thinker -> decode      (text)
                   +-> image_encoder -+                        `--> talker_ar -> code2wav  (audio)
                   +------------------+
                   +-> transcriber   (transcript: a side branch that never delays the thinker)
                   `-> talker_ar     (a text that is only spoken: no thinker runs for it)

Which stages a request opens follows from the request: an encoder that it brings nothing for is never opened, and the
talker opens when the thinker has said its first token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from antiphon.pipelines.errors import ConfigError, WeightError
from antiphon.pipelines.graph import MAIN_PROCESS, PipelineConfig, StageConfig
from antiphon.pipelines.info import PipelineInfo, Task
from antiphon.pipelines.local.pipeline import Remote, parse_role
from antiphon.pipelines.local.prepared import last_transcript
from antiphon.pipelines.qwen3_omni import params, payloads
from antiphon.pipelines.qwen3_omni.check import Check
from antiphon.pipelines.qwen3_omni.media.limits import SPEECH_TOKENS, picture_limits
from antiphon.pipelines.qwen3_omni.prompt_kinds import brings_audio, brings_pictures
from antiphon.pipelines.qwen3_omni.stage_args import check as check_stage_args
from antiphon.pipelines.stage import CLIENT, Request

Preset = Literal["cpu", "cpu_apart", "one_gpu", "two_gpus"]
_HERE = "antiphon.pipelines.qwen3_omni"
MAX_OPEN = 16
ADMITTED = 1024
"""More than a server takes in: who waits for a slow address takes no place from whom has none to wait for."""
SGLANG_NOTE = "the thinker is SGLang: held against the sources of its releases, never run against one"
TEXT_CREDITS = 4096
"""A whole answer: the thinker never waits for the talker, and the entry keeps no place for a text that is being spoken."""


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
_EARS = Spot(lane="ears")
_MIND = ("image_encoder", "audio_encoder", "mm_aggregate", "thinker", "decode")
_VOICE = ("talker_ar", "code2wav")


def _apart(mind: tuple[int, ...], voice: tuple[int, ...]) -> dict[str, Spot]:
    """Thinker and voice in processes of their own, on these GPUs."""
    return {
        "preprocessing": _MEDIA,
        "transcriber": _EARS,
        **{name: Spot("thinker", "thinker", mind) for name in _MIND},
        **{name: Spot("voice", "voice", voice) for name in _VOICE},
    }


PRESETS: Mapping[Preset, Mapping[str, Spot]] = {
    # Two torch lanes on few cores are slower than one: everything but decoding of media shares a lane.
    "cpu": {"preprocessing": _MEDIA, "transcriber": _EARS},
    "cpu_apart": _apart((), ()),
    "one_gpu": _apart((0,), (0,)),
    "two_gpus": _apart((0,), (1,)),
}
"""Where the stages run: all on CPU in one process, or thinker and voice apart; those two on one GPU, or on one each."""


def build(
    folder: str,
    *,
    speech: bool = True,
    preset: Preset = "cpu",
    thinker: str = "local",
    transcriber: str = "",
    name: str = "qwen3-omni",
    stage_args: Mapping[str, Mapping[str, Any]] | None = None,
) -> PipelineConfig:
    """The pipeline over the checkpoint in ``folder``.

    ``thinker``: "local", ``openai:URL#MODEL`` (a running SGLang server) or "sglang" (its engine in this process).
    ``transcriber``: "" for none, "local" for Whisper, ``openai:URL#MODEL``. ``stage_args`` adds factory arguments by stage.
    Raises WeightError for a folder that is no Qwen3-Omni checkpoint, ConfigError naming a preset, flag or stage name.
    Nothing heavy is imported and no weight is read here.
    """
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r} is not one of {', '.join(PRESETS)}")
    voices = speakers(folder) if speech else ()
    stages = _stages(speech, bool(transcriber))
    stages = [_placed(stage, PRESETS[preset].get(stage.name, Spot()), folder) for stage in stages]
    stages = [_played(stage, thinker, transcriber) for stage in stages]
    extra = dict(stage_args or {})
    check_stage_args(extra, {s.name: s.factory for s in stages})
    tokens = context_tokens(folder, extra.get("thinker", {}))
    # The entry refuses what the thinker could not take, before anything is decoded or encoded for it, and what the talker
    # could not hold.
    bounds = {"context": tokens}
    if "kv_tokens" in extra.get("talker_ar", {}):
        bounds["talker_kv_tokens"] = extra["talker_ar"]["kv_tokens"]
    extra["preprocessing"] = {**bounds, **extra.get("preprocessing", {})}
    elsewhere = thinker not in ("", "local")
    if not speech and not elsewhere:
        extra["thinker"] = {"speaks": False, **extra.get("thinker", {})}
    stages = [_budgeted(replace(s, factory_args={**s.factory_args, **extra.get(s.name, {})})) for s in stages]
    called = os.path.basename(os.path.abspath(folder))  # "." has a name too
    info = _info(name, called, voices, speech, bool(transcriber), thinker if elsewhere else "", tokens)
    info = structs.replace(info, pictures=picture_limits(folder, extra["preprocessing"]), speech_tokens=SPEECH_TOKENS)
    return PipelineConfig(name, "preprocessing", stages, info=info, check=Check(voices, bool(transcriber), elsewhere))


def _info(
    name: str, model: str, voices: tuple[str, ...], speech: bool, hears: bool, elsewhere: str, tokens: int
) -> PipelineInfo:
    """``elsewhere``: who plays the thinker, where it is none of ours."""
    made = ("text", *(("audio",) if speech else ()), *(("transcript",) if hears else ()))
    called = elsewhere.partition("#")[2]
    if called.startswith("/"):  # SGLang's own default: the folder it was started with
        called = Path(called).name
    terminals: dict[Task, tuple[str, ...]] = {"chat": made}
    inputs: dict[Task, tuple[str, ...]] = {"chat": ("text",) if elsewhere else ("text", "audio", "image", "video")}
    if speech:
        terminals["speech"], inputs["speech"] = ("audio",), ("text",)
    if hears:
        terminals["transcription"], inputs["transcription"] = ("transcript",), ("audio",)
    return PipelineInfo(
        name=name,
        model=model,
        models={"thinker": called or model, **({"talker": model} if speech else {})},
        terminals=terminals,
        inputs=inputs,
        voices=voices,
        paced=False,
        languages=params.LANGUAGES if speech else (),
        early_responses=True,
        context_tokens=tokens,
        notes=(
            "not verified on a GPU",
            "published weights were never run: checked on a random model of the same layout",
            *((SGLANG_NOTE,) if elsewhere else ()),
        ),
    )


def context_tokens(folder: str, thinker: Mapping[str, Any]) -> int:
    """Prompt and answer together, as the thinker will count them: its setting, within the model's own and its cache's."""
    bounds = [thinker.get("context", params.CONTEXT_TOKENS), thinker.get("kv_tokens", params.CONTEXT_TOKENS)]
    try:
        config = json.loads((Path(folder) / "config.json").read_text())
        bounds.append(int(config["thinker_config"]["text_config"]["max_position_embeddings"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no such file is said by who reads all of it; a config may leave it to its default
    return int(min(bounds))


def speakers(folder: str) -> tuple[str, ...]:
    """The checkpoint's voices, the default one first. Raises WeightError for a folder that names none."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text())
        if config["model_type"] == "qwen3_omni_moe" and not config.get("talker_config"):
            raise WeightError(f"{folder!r} holds a model that does not speak: --text-only serves it")
        return params.in_order(config["talker_config"]["speaker_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not Path(folder).is_dir():
            raise WeightError(f"there is no folder {folder!r}") from None
        raise WeightError(f"{folder!r} holds no config.json with a talker that has speakers") from error


def entry_route(request: Request) -> tuple[str, ...]:
    """The encoders that this request brings something for, and the aggregate; the talker, for a text that is only spoken."""
    if request.body.task == "speech":
        return ("talker_ar",)
    route = ["mm_aggregate"]
    if brings_audio(request.body):
        route.append("audio_encoder")
    if brings_pictures(request.body):
        route.append("image_encoder")
    return tuple(route)


def hearing_route(request: Request) -> tuple[str, ...]:
    """The same, and the transcriber when it is asked."""
    if request.body.task == "transcription":
        return ("transcriber",)
    return entry_route(request) + (("transcriber",) if "transcript" in request.terminals else ())


def merge(request: Request, results: Mapping[str, Any]) -> Any:
    """Imported late: the aggregate's module imports torch, a declaration must not."""
    from antiphon.pipelines.qwen3_omni.aggregate import merge as merged

    return merged(request, results)


def _stages(speech: bool, hears: bool) -> list[StageConfig]:
    thinker_to = ("decode", "talker_ar") if speech else ("decode",)
    common: dict[str, Any] = {"max_open": MAX_OPEN, "max_batch": MAX_OPEN}
    stages = [
        StageConfig(
            name="preprocessing",
            factory=f"{_HERE}.preprocessing:Preprocessing",
            next=("audio_encoder", "image_encoder", "mm_aggregate", *(("transcriber",) if hears else ())),
            stream_to=("talker_ar",) if speech else (),
            route_fn=hearing_route if hears else entry_route,
            project_payload={
                "audio_encoder": payloads.speech_only,
                "image_encoder": payloads.pictures_only,
                "mm_aggregate": payloads.without_media,
                **({"transcriber": payloads.clips_only} if hears else {}),
            },
            credits=TEXT_CREDITS,
            max_open=ADMITTED,
        ),
        # An item is a forward of its own: between two of them who is more urgent may have the device.
        *(
            StageConfig(
                name=f"{kind.lower()}_encoder",
                factory=f"{_HERE}.encoders:{kind}Encoder",
                next=("mm_aggregate",),
                max_open=MAX_OPEN,
                max_batch=1,
            )
            for kind in ("Audio", "Image")
        ),
        StageConfig(name="mm_aggregate", factory=f"{_HERE}.aggregate:Aggregate", next=("thinker",), merge_fn=merge, **common),
        StageConfig(
            name="thinker",
            factory=f"{_HERE}.thinker:Thinker",
            stream_to=thinker_to,
            project_payload={"decode": payloads.without_prompt},
            credits=TEXT_CREDITS,
            prepares=True,
            **common,
        ),
        StageConfig(name="decode", factory=f"{_HERE}.decode:Decode", terminal="text", credits=TEXT_CREDITS, **common),
    ]
    if speech:
        stages += [
            StageConfig(
                name="talker_ar",
                factory=f"{_HERE}.talker:Talker",
                # It opens with the first token, of the one or the other that streams to it: never both in one request.
                stream_to=("code2wav",),
                credits=32,
                **common,
            ),
            StageConfig(name="code2wav", factory=f"{_HERE}.code2wav:Code2Wav", terminal="audio", credits=8, **common),
        ]
    if hears:
        stages.append(
            StageConfig(
                name="transcriber",
                factory="antiphon.pipelines.local.transcriber:Transcriber",
                terminal="transcript",
                project_payload={CLIENT: last_transcript},
                side=True,
                max_open=64,
                max_batch=4,
            )
        )
    return stages


def _played(stage: StageConfig, thinker: str, transcriber: str) -> StageConfig:
    """The stage with who plays it: this checkpoint, a server, an engine of another kind."""
    if stage.name == "thinker" and thinker not in ("", "local"):
        args: dict[str, Any] = {"folder": stage.factory_args["folder"]}
        if thinker != "sglang":
            spec = parse_role("thinker", thinker)
            if not isinstance(spec, Remote):
                raise ConfigError(f"--thinker {thinker!r}: this pipeline knows local, sglang and openai:URL#MODEL")
            args |= {"url": spec.url, "model_name": spec.model}
        lane, gpu = ("sglang", stage.gpu) if thinker == "sglang" else ("remote_mind", ())
        return replace(stage, factory=f"{_HERE}.sglang_thinker:SglangThinker", factory_args=args, lane=lane, gpu=gpu)
    if stage.name == "transcriber" and isinstance(spec := parse_role("transcriber", transcriber), Remote):
        factory = "antiphon.pipelines.engines.openai.transcriber:OpenAITranscriber"
        return replace(stage, factory=factory, factory_args={"url": spec.url, "model": spec.model}, lane="remote_ears")
    return stage


def _budgeted(stage: StageConfig) -> StageConfig:
    """A step of an autoregressive stage holds one slice of a prompt, however many begin, and a token of everybody else: nobody
    who is being heard waits for a crowd of newcomers."""
    if stage.name not in ("thinker", "talker_ar"):
        return stage
    return replace(stage, step_budget=stage.factory_args.get("prefill_slice", params.PREFILL_SLICE) + stage.max_batch)


_PLAIN = frozenset(("preprocessing", "mm_aggregate", "decode", "transcriber"))
"""Stages that run on no device of their own."""


def _placed(stage: StageConfig, spot: Spot, folder: str) -> StageConfig:
    args: dict[str, Any] = {} if stage.name == "transcriber" else {"folder": folder}
    if stage.name not in _PLAIN:
        args["device"] = spot.device
    gpu = () if stage.name in _PLAIN else spot.gpu
    return replace(stage, factory_args=args, process=spot.process, lane=spot.lane, gpu=gpu)
