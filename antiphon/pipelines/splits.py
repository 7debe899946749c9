"""The three ways to cut a pipeline into processes, for any pipeline: in one, models apart from the door, every stage apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.graph import MAIN_PROCESS, PipelineConfig
from antiphon.pipelines.lane_thread import load_factory

Split = Literal["one", "split", "apart"]
MODELS = "model"
"""The process of what a declaration places beside the door."""


def build(builder: str, args: Mapping[str, Any], split: Split) -> PipelineConfig:
    """``builder(**args)``, cut. As a builder itself it can be called again in every process. Raises ConfigError."""
    config = load_factory(builder)(**args)
    if not isinstance(config, PipelineConfig):
        raise ConfigError(f"{builder} made a {type(config).__name__}, not a PipelineConfig")
    match split:
        case "one":
            return config.in_one_process()
        case "split":
            stages = [replace(s, process=MODELS if s.process == MAIN_PROCESS else s.process) for s in config.stages.values()]
        case "apart":
            stages = [replace(s, process=s.name, lane=s.name) for s in config.stages.values()]
    return PipelineConfig(config.name, config.entry, stages, info=config.info, check=config.check)
