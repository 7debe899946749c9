"""What a declaration must satisfy before it runs. Every refusal names the stage and the field.

The deadlock rule: draw y->x if y streams to x (y stands still while its stream into x is full), and x->w if x streams to t
and something else that opens t (a Result, another start_on) is w or lies downstream of w (x's stream fills while t is not
open). A cycle is a request, or two that hold each other's slots, waiting for itself. Random graphs under this rule drain;
weaker rules let three kinds of deadlock through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.stage import CLIENT
from antiphon.pipelines.walk import walk

if TYPE_CHECKING:
    from antiphon.pipelines.graph import PipelineConfig, StageConfig


def validate(config: PipelineConfig) -> Mapping[str, int]:
    """Check the whole declaration; return the topological order. Raises ConfigError."""
    if config.entry not in config.stages:
        raise ConfigError(f"entry {config.entry!r} is not a stage of {config.name!r}")
    terminals: dict[str, str] = {}
    for stage in config.stages.values():
        _targets(config, stage)
        _numbers(stage)
        _start(config, stage)
        if stage.terminal is not None:
            if stage.terminal in terminals:
                raise ConfigError(f"terminal {stage.terminal!r} is made by both {terminals[stage.terminal]} and {stage.name}")
            terminals[stage.terminal] = stage.name
        if not (stage.next or stage.stream_to or stage.terminal or stage.prepares):
            raise ConfigError(f"{stage.name} leads nowhere: no next, stream_to, terminal or prepares")
    _fan_in(config)
    order = _topological(config)
    _reachable(config)
    _devices(config)
    _no_deadlock(config)
    return order


def refuse_unexecuted(config: PipelineConfig, *, processes: bool = False) -> None:
    """Refuse declared fields that the runtime at hand does not execute: silence would be a lie."""
    for stage in config.stages.values():
        if stage.tp_size > 1:
            raise ConfigError(f"{stage.name}.tp_size={stage.tp_size}: tensor parallelism is not executed by this runtime")
        if stage.process != "main" and not processes:
            raise ConfigError(f"{stage.name}.process={stage.process!r}: this runtime runs one process")
        if stage.gpu and stage.factory_args.get("device") != f"cuda:{stage.gpu[0]}":
            raise ConfigError(f"{stage.name}.gpu={stage.gpu}: only a stage that is given that device places itself there")
        if stage.relay not in ("", "reference") and not processes:
            raise ConfigError(f"{stage.name}.relay={stage.relay!r}: this runtime moves data by reference only")


def _targets(config: PipelineConfig, stage: StageConfig) -> None:
    named = (
        ("next", stage.next),
        ("stream_to", stage.stream_to),
        ("start_on", tuple(stage.start_on)),
        ("project_payload", tuple(n for n in stage.project_payload if n != CLIENT)),
    )
    for label, names in named:
        for name in names:
            if name not in config.stages:
                raise ConfigError(f"{stage.name}.{label} names an unknown stage {name!r}")
    if len(set(stage.next)) != len(stage.next) or len(set(stage.stream_to)) != len(stage.stream_to):
        raise ConfigError(f"{stage.name} names a target twice")
    if set(stage.next) & set(stage.stream_to):
        raise ConfigError(f"{stage.name}: {sorted(set(stage.next) & set(stage.stream_to))} is in next and in stream_to")
    if set(stage.project_payload) - set(stage.next) - set(stage.stream_to) - ({CLIENT} if stage.terminal else set()):
        raise ConfigError(f"{stage.name}.project_payload names a stage that it does not send to")


def _numbers(stage: StageConfig) -> None:
    for label, number in (
        ("max_open", stage.max_open),
        ("max_batch", stage.max_batch),
        ("step_budget", stage.step_budget),
        ("credits", stage.credits),
        ("tp_size", stage.tp_size),
    ):
        if number < 1:
            raise ConfigError(f"{stage.name}.{label} must be at least 1, not {number}")
    if ":" not in stage.factory:
        raise ConfigError(f"{stage.name}.factory must read 'module.path:Name', not {stage.factory!r}")


def _start(config: PipelineConfig, stage: StageConfig) -> None:
    for upstream, count in stage.start_on.items():
        if stage.name not in config.stages[upstream].stream_to:
            raise ConfigError(f"{stage.name}.start_on: {upstream!r} never streams to it")
        if count < 1 or count > config.stages[upstream].credits:
            raise ConfigError(
                f"{stage.name}.start_on: {count} chunks of {upstream!r} can never be under way "
                f"(its credits are {config.stages[upstream].credits})"
            )


def _fan_in(config: PipelineConfig) -> None:
    for stage in config.stages.values():
        senders = sorted(u.name for u in config.stages.values() if stage.name in u.next)
        if len(senders) > 1 and stage.merge_fn is None:
            raise ConfigError(f"{stage.name} gets Results from {senders} and has no merge_fn")


def _topological(config: PipelineConfig) -> dict[str, int]:
    order: dict[str, int] = {}
    left = dict(config.stages)
    while left:
        free = [n for n in left if not any(n in u.next + u.stream_to for u in left.values())]
        if not free:
            raise ConfigError(f"cycle among {sorted(left)}")
        for name in free:
            order[name] = len(order)
            del left[name]
    return order


def _reachable(config: PipelineConfig) -> None:
    reached = walk([config.entry], lambda n: config.stages[n].next + config.stages[n].stream_to)
    lost = sorted(set(config.stages) - reached)
    if lost:
        raise ConfigError(f"unreachable from {config.entry!r}: {lost}")


def _devices(config: PipelineConfig) -> None:
    for stage in config.stages.values():
        if stage.tp_size > 1 and stage.gpu and len(stage.gpu) != stage.tp_size:
            raise ConfigError(f"{stage.name}: tp_size={stage.tp_size} needs as many GPUs, not {stage.gpu}")
        if stage.tp_size == 1:
            continue
        for other in config.stages.values():
            shared = set(stage.gpu) & set(other.gpu)
            if other.name != stage.name and shared:
                raise ConfigError(f"{other.name}.gpu {sorted(shared)} lies inside {stage.name}'s tensor-parallel range")


def _no_deadlock(config: PipelineConfig) -> None:
    stages = config.stages
    upstream = {n: [u.name for u in stages.values() if n in u.next + u.stream_to] for n in stages}
    waits: dict[str, set[str]] = {n: set(stages[n].stream_to) for n in stages}
    for target in stages.values():
        senders = [u.name for u in stages.values() if target.name in u.next]
        for sender in (u.name for u in stages.values() if target.name in u.stream_to):
            for opener in {*senders, *target.start_on} - {sender}:
                waits[sender] |= walk([opener], lambda n: upstream[n])
    for name in stages:
        if name in walk(waits[name], lambda n: waits[n]):
            raise ConfigError(
                f"{name} can wait for itself: a stage that it streams to opens only on something that needs {name} to go on"
            )
