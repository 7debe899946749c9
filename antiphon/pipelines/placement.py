"""Which stage runs in which process, how many times, with which environment; and what a process must be told to start.

The declaration is built again in every process from the same builder and arguments, so no function ever travels.
``main`` is the process of the door itself: its lanes are threads beside the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from antiphon.pipelines import threads
from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.graph import MAIN_PROCESS, PipelineConfig
from antiphon.pipelines.lane_thread import STEP_LIMIT_S, load_factory
from antiphon.pipelines.relay.ref import KINDS
from antiphon.pipelines.validation import refuse_unexecuted


class PipelineSpec(msgspec.Struct, frozen=True):
    """A declaration that any process can build: ``builder`` ("module:function") called with ``args`` (plain values)."""

    builder: str
    args: dict[str, Any] = {}

    def build(self) -> PipelineConfig:
        """Raises ConfigError."""
        config = load_factory(self.builder)(**self.args)
        if not isinstance(config, PipelineConfig):
            raise ConfigError(f"{self.builder} made a {type(config).__name__}, not a PipelineConfig")
        return config


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How one process group runs. ``threads``: of each model in it, and of numeric libraries; ``env`` comes on top.

    ``replicas``: so many processes; a conversation stays with one of them. ``step_limit_s``: a step that takes half as
    long is reported, one that takes longer has its process killed and started again (in the door's own process: fails
    what is inside). ``start_limit_s``: for loading and warming up.
    """

    replicas: int = 1
    threads: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    step_limit_s: float = STEP_LIMIT_S
    start_limit_s: float = 900.0


@dataclass(frozen=True)
class Placement:
    """Options by process group; ``default`` for the rest."""

    groups: Mapping[str, ProcessOptions] = field(default_factory=dict)
    default: ProcessOptions = ProcessOptions()

    def of(self, process: str) -> ProcessOptions:
        return self.groups.get(process, self.default)

    def check(self, config: PipelineConfig) -> None:
        """Raises ConfigError for options of a process that the pipeline does not have, or numbers that cannot run."""
        processes = groups(config)
        for name in self.groups:
            if name not in processes:
                raise ConfigError(f"options for process {name!r}, but {config.name!r} has only {sorted(processes)}")
        for name in processes:
            options = self.of(name)
            for setting in ("replicas", "threads", "step_limit_s", "start_limit_s"):
                if not getattr(options, setting) > 0:
                    raise ConfigError(f"process {name!r}: {setting} must be more than 0, not {getattr(options, setting)}")
        door = self.groups.get(MAIN_PROCESS, ProcessOptions())
        if replace(door, step_limit_s=0.0) != replace(ProcessOptions(), step_limit_s=0.0):
            raise ConfigError(f"process {MAIN_PROCESS!r} is the door's own, started already: it takes only step_limit_s")


class WorkerSpec(msgspec.Struct, frozen=True):
    """All that a worker is told, on its standard input. ``name`` is its own ("model.0"), ``generation`` counts restarts."""

    name: str
    process: str
    generation: int
    folder: str
    door: str
    pipeline: PipelineSpec
    env: dict[str, str]
    sys_path: list[str]
    step_limit_s: float
    log_level: int = 30

    @property
    def owner(self) -> str:
        """The name of this life of it, unlike any before: of its socket and its segments."""
        return f"{self.name}.{self.generation}"


def groups(config: PipelineConfig) -> dict[str, list[str]]:
    """Process -> its stages, in declaration order."""
    found: dict[str, list[str]] = {}
    for stage in config.stages.values():
        found.setdefault(stage.process, []).append(stage.name)
    return found


def environment(options: ProcessOptions) -> dict[str, str]:
    return {**threads.variables(options.threads), **options.env}


def settle(config: PipelineConfig) -> PipelineConfig:
    """The same pipeline with lane names that are unique over its processes. Raises ConfigError for what cannot run."""
    refuse_unexecuted(config, processes=True)
    for stage in config.stages.values():
        if stage.relay not in ("", *KINDS):
            raise ConfigError(f"{stage.name}.relay={stage.relay!r} is not known; it can be {', '.join(KINDS)}")
        if not stage.process or any(c in stage.process for c in "/.\0"):
            raise ConfigError(f"{stage.name}.process={stage.process!r}: a name without dots and slashes")
        if stage.relay == "reference":
            for target in (*stage.next, *stage.stream_to):
                if config.stages[target].process != stage.process:
                    raise ConfigError(f"{stage.name}.relay='reference': {target} runs in another process")
            if stage.terminal is not None and stage.process != MAIN_PROCESS:
                raise ConfigError(f"{stage.name}.relay='reference': its terminal is read in another process")
    where: dict[str, set[str]] = {}
    for stage in config.stages.values():
        where.setdefault(stage.lane, set()).add(stage.process)
    stages = [s if len(where[s.lane]) == 1 else replace(s, lane=f"{s.process}.{s.lane}") for s in config.stages.values()]
    return PipelineConfig(config.name, config.entry, stages, info=config.info, check=config.check)


def credits_at_once(config: PipelineConfig) -> dict[str, int]:
    """How many credits go back to a stage in one message: half of its window, so that neither end ever waits for long."""
    return {s.name: max(1, s.credits // 2) for s in config.stages.values()}


def packages(config: PipelineConfig, spec: PipelineSpec) -> set[str]:
    """The packages that the pipeline's code comes from: whose Structs may travel."""
    paths = (spec.builder, *(s.factory for s in config.stages.values()))
    return {path.partition(":")[0].partition(".")[0] for path in paths}
