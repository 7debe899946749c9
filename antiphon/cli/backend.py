"""Settings -> the pipeline that runs: which declaration, which weights, which processes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from antiphon.cli.console import downloads
from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.settings import ServerSettings

EXTRAS = {
    "local": ("onnxruntime", "ctranslate2", "hibari", "cyllama", "tokenizers"),
    "qwen3_omni": ("torch", "transformers"),
}


def require_extra(pipeline: str) -> None:
    """Raises ConfigError with the command that mends it when the pipeline's extra is not installed."""
    missing = [name for name in EXTRAS[pipeline] if importlib.util.find_spec(name) is None]
    if missing:
        extra = "local" if pipeline == "local" else "omni"
        raise ConfigError(f"pipeline {pipeline!r} needs {', '.join(missing)}: pip install 'antiphon[{extra}]'")


def needed_weights(settings: ServerSettings, *, ears: bool = True) -> list[str]:
    """The named weights that these settings load."""
    names: list[str] = []
    if settings.pipeline == "local":
        from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

        roles = {"transcriber": settings.transcriber, "thinker": settings.thinker, "talker": settings.talker}
        for role, chosen in roles.items():
            if chosen in ("", "local") and not (settings.text_only and role == "talker"):
                names.append(DEFAULT_WEIGHTS[role])
    if ears and settings.realtime:
        names += ["silero-vad", "smart-turn-v3.2"]
    return names


def fetch(names: list[str]) -> None:
    """Fetch what is not here yet, with progress. Raises WeightError."""
    with downloads() as progress:
        for name in names:
            weights.ensure(name, progress)


def declare(settings: ServerSettings) -> PipelineConfig:
    """The declaration that these settings ask for. Raises ConfigError naming the setting."""
    require_extra(settings.pipeline)
    if settings.pipeline == "qwen3_omni":
        return _qwen(settings)
    from antiphon.pipelines.local.pipeline import build

    if settings.model:
        raise ConfigError("--model is for pipelines that take a checkpoint folder; use --thinker with pipeline 'local'")
    return build(
        thinker=settings.thinker,
        transcriber=settings.transcriber,
        talker=settings.talker,
        fallback=settings.fallback,
        text_only=settings.text_only,
        processes=settings.processes,
    )


def _qwen(settings: ServerSettings) -> PipelineConfig:
    raise ConfigError("pipeline 'qwen3_omni' is not served from the command line yet")


def client_factory(settings: ServerSettings) -> Callable[[], Client]:
    """Called once, on the server's loop."""
    config = declare(settings)
    if settings.processes == "one":
        return lambda: Client(LocalRuntime(config, max_requests=settings.max_requests))
    raise ConfigError(f"--processes {settings.processes} is not there yet; use --processes one")


def local_client(**roles: Any) -> Client:
    """The CPU voice in this process, for commands that need no server."""
    settings = ServerSettings(processes="one", realtime=False, **roles)
    config = declare(settings)
    fetch(needed_weights(settings))
    return Client(LocalRuntime(config))
