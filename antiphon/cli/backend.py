"""Settings -> the pipeline that runs: which declaration, which weights, which processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from antiphon.cli.console import downloads
from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.graph import MAIN_PROCESS
from antiphon.pipelines.local import thinker_model
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.doors import OpenEar
from antiphon.settings import ServerSettings

EXTRAS = {
    "local": ("onnxruntime", "ctranslate2", "hibari", "cyllama", "tokenizers"),
    "qwen3_omni": ("torch", "transformers"),
}

HEARING = ("onnxruntime", "ctranslate2", "tokenizers")
GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's driver, of AMD's, and of either inside WSL."""


def require_extra(pipeline: str) -> None:
    """Raises ConfigError with the command that mends it when the pipeline's extra is not installed."""
    if missing := _not_installed(EXTRAS[pipeline]):
        extra = "local" if pipeline == "local" else "omni"
        raise ConfigError(f"pipeline {pipeline!r} needs {', '.join(missing)}: pip install 'antiphon[{extra}]'")


def _not_installed(packages: Iterable[str]) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


def needed_weights(settings: ServerSettings, *, ears: bool = True) -> list[str]:
    """The named weights that these settings load."""
    names: list[str] = []
    if pipeline_of(settings) == "qwen3_omni":
        names += ["whisper-base-ct2"] if settings.transcriber == "local" else []
    else:
        from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

        roles = {"transcriber": settings.transcriber, "thinker": settings.thinker, "talker": settings.talker}
        if settings.thinker.startswith("weight:"):
            names.append(settings.thinker.removeprefix("weight:"))
        for role, chosen in roles.items():
            if chosen in ("", "local") and not (settings.text_only and role == "talker"):
                names.append(DEFAULT_WEIGHTS[role])
    if ears and settings.realtime:
        names += ["silero-vad", "smart-turn-v3.2"]
    if "whisper-base-ct2" in names:
        names.append("silero-vad")  # what nobody said is not read
    return list(dict.fromkeys(names))


def fetch(names: list[str]) -> None:
    """Fetch what is not here yet, with progress. Raises WeightError."""
    with _unwound(), downloads() as progress:
        for name in names:
            weights.ensure(name, progress)
            if name == thinker_model.DEFAULT:
                thinker_model.ensure(name, progress)  # requantised once, here rather than at the first start


@contextmanager
def _unwound() -> Iterator[None]:
    """SIGTERM in here ends what was begun (a package client that downloads would go on alone) and then this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        raise SystemExit

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for number in told:
            signal.raise_signal(number)


def pipeline_of(settings: ServerSettings) -> str:
    """ "local" or "qwen3_omni"."""
    return settings.pipeline or ("qwen3_omni" if settings.model else "local")


def declare(settings: ServerSettings) -> PipelineSpec:
    """The declaration that these settings ask for; any process can build it. Raises ConfigError naming the setting."""
    pipeline = pipeline_of(settings)
    require_extra(pipeline)
    for name, folder in settings.weights.items():
        os.environ[weights.variable(name)] = folder  # the environment reaches the workers too
    if pipeline == "qwen3_omni":
        return _qwen(settings)
    if settings.stage:
        raise ConfigError("settings: [stage.NAME] is for pipelines that take a checkpoint folder")
    if settings.model:
        raise ConfigError("--model is for pipelines that take a checkpoint folder; with 'local' use --thinker")
    if settings.preset:
        raise ConfigError("--preset is for pipelines that take a checkpoint folder: with --model FOLDER")
    roles = {
        "thinker": settings.thinker,
        "transcriber": settings.transcriber,
        "talker": settings.talker,
        "fallback": settings.fallback,
        "text_only": settings.text_only,
    }
    return _cut("antiphon.pipelines.local.pipeline:build", roles, settings)


def _qwen(settings: ServerSettings) -> PipelineSpec:
    if not settings.model:
        raise ConfigError("pipeline 'qwen3_omni' needs --model FOLDER (a checkpoint)")
    if settings.talker != "local":
        raise ConfigError("pipeline 'qwen3_omni' has a talker of its own: --talker cannot be set")
    if settings.fallback:
        raise ConfigError("settings: pipeline 'qwen3_omni' has no fallback: who plays its thinker plays it alone")
    args: dict[str, Any] = {
        "folder": settings.model,
        "speech": not settings.text_only,
        "thinker": settings.thinker,
        "transcriber": settings.transcriber,
        "stage_args": settings.stage,
    }
    placed = settings.preset or ("" if any("device" in own for own in settings.stage.values()) else usual_preset())
    if placed:
        args["preset"] = placed
    if settings.transcriber == "local" and (missing := _not_installed(HEARING)):
        raise ConfigError(
            f"the local transcriber needs {', '.join(missing)}: pip install 'antiphon[local,omni]', "
            "or serve without one: --transcriber ''"
        )
    return _cut("antiphon.pipelines.qwen3_omni.pipeline:build", args, settings)


def usual_preset() -> str:
    """Where a checkpoint runs when nobody says so: on the GPUs that are here, else on the CPU.

    torch, which takes a second to import, is asked only where a driver is.
    """
    if not any(os.path.exists(driver) for driver in GPU_DRIVERS):
        return "cpu"
    import torch

    return {0: "cpu", 1: "one_gpu"}.get(torch.cuda.device_count(), "two_gpus")


def _cut(builder: str, args: dict[str, Any], settings: ServerSettings) -> PipelineSpec:
    return PipelineSpec("antiphon.pipelines.splits:build", {"builder": builder, "args": args, "split": settings.processes})


def client_factory(settings: ServerSettings) -> Callable[[], Client]:
    """Called once, on the server's loop. Raises ConfigError at once for a declaration or a placement that cannot run."""
    spec = declare(settings)
    places = placement(settings)
    try:
        places.check(spec.build())
    except ConfigError as error:
        if settings.process:
            raise ConfigError(f"settings: [process.NAME]: {error}") from None
        raise

    def make() -> Client:
        if settings.processes == "one":
            limit = places.of(MAIN_PROCESS).step_limit_s
            return Client(LocalRuntime(spec.build(), max_requests=settings.max_requests, step_limit_s=limit))
        return Client(ProcessRuntime(spec, places, max_requests=settings.max_requests))

    return make


def placement(settings: ServerSettings) -> Placement:
    """Replicas, threads, environment and limits: the settings for all, and what a process group has of its own."""
    default = ProcessOptions(replicas=settings.replicas, threads=settings.threads)
    groups = {}
    for name, own in settings.process.items():
        said = {k: v for k, v in msgspec.structs.asdict(own).items() if v is not None}
        groups[name] = replace(ProcessOptions() if name == MAIN_PROCESS else default, **said)
    return Placement(groups, default)


@contextmanager
def ears(settings: ServerSettings) -> Iterator[OpenEar | None]:
    """The ears of all conversations, in the door's own process; None when no conversations are served."""
    if not settings.realtime:
        yield None
        return
    if importlib.util.find_spec("onnxruntime") is None:
        raise ConfigError("conversations need ears: pip install 'antiphon[local]', or serve with --no-realtime")
    from antiphon.pipelines.ears.ears import Ears
    from antiphon.realtime.shell.ears import SharedEars

    shared = Ears()
    try:
        yield SharedEars(shared)
    finally:
        shared.shut_down()


def local_client(**roles: Any) -> Client:
    """The CPU voice in this process, for commands that need no server."""
    settings = ServerSettings(processes="one", realtime=False, **roles)
    spec = declare(settings)
    fetch(needed_weights(settings))
    return Client(LocalRuntime(spec.build()))
