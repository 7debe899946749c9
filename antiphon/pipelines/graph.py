"""The declaration of a pipeline: stages, edges, terminals; and the plan of one request, derived from it at submit.

Functions in a declaration (``merge_fn``, ``route_fn``, projections) are pure and importable: every process that takes part
builds the same declaration from the same builder and arguments, so no function ever travels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.stage import CLIENT, Merge, Request
from antiphon.pipelines.validation import validate
from antiphon.pipelines.walk import walk

MAIN_PROCESS = "main"


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage as declared. ``factory`` is "module.path:Name", called with ``factory_args`` on the lane that steps it.

    next / stream_to: where its Result / its chunks go.       start_on: open when an upstream has sent so many chunks.
    merge_fn: several upstream Results become one input.       route_fn: which of next and stream_to this request takes.
    terminal: its chunks and Result go to the client.           project_payload: what part of a Result or chunk goes to a
    target ("client": to the terminal's reader); it sees both.
    max_open: open tasks; max_batch: tasks in a step; step_budget: cost units in a step; credits: chunks in flight per
    request and edge. side: its failure is a skip for what follows. prepares: the end of a ``prepare`` request.
    """

    name: str
    factory: str
    factory_args: Mapping[str, Any] = field(default_factory=dict)
    process: str = MAIN_PROCESS
    lane: str = "main"
    gpu: tuple[int, ...] = ()
    tp_size: int = 1
    relay: str = ""
    next: tuple[str, ...] = ()
    stream_to: tuple[str, ...] = ()
    merge_fn: Callable[[Request, Merge], Any] | None = None
    start_on: Mapping[str, int] = field(default_factory=dict)
    route_fn: Callable[[Request], Sequence[str]] | None = None
    project_payload: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    terminal: str | None = None
    max_open: int = 8
    max_batch: int = 8
    step_budget: int = 1 << 30
    credits: int = 8
    side: bool = False
    prepares: bool = False


class Plan(msgspec.Struct, frozen=True):
    """The live part of the graph for one request. ``ends``: terminal -> the stage that makes it.

    ``side``: the stages that it can go on without. Who asks for nothing but what side stages make cannot.
    """

    stages: tuple[str, ...]
    next: dict[str, tuple[str, ...]]
    stream: dict[str, tuple[str, ...]]
    results: dict[str, frozenset[str]]
    streams: dict[str, frozenset[str]]
    ends: dict[str, str]
    side: frozenset[str]


class PipelineConfig:
    """Stages by name, validated. Raises ConfigError naming the stage and the field.

    ``check`` refuses a request that no stage should see (a language that the voice cannot speak); it raises Refused.
    """

    def __init__(
        self,
        name: str,
        entry: str,
        stages: Sequence[StageConfig],
        *,
        info: PipelineInfo | None = None,
        check: Callable[[Request], None] | None = None,
    ) -> None:
        self.name = name
        self.entry = entry
        self.info = info or PipelineInfo(name=name, model=name)
        self.check = check
        self.stages: dict[str, StageConfig] = {}
        for stage in stages:
            if stage.name in self.stages or stage.name == CLIENT:
                raise ConfigError(f"stage name {stage.name!r} is taken")
            self.stages[stage.name] = stage
        self.order: Mapping[str, int] = validate(self)
        """Topological order; a higher number is nearer to the listener."""

    def in_one_process(self) -> PipelineConfig:
        """The same pipeline with every lane in this process; each (process, lane) pair stays a lane of its own."""
        lanes = {s.lane: s.process for s in self.stages.values()}
        unique = all(lanes[s.lane] == s.process for s in self.stages.values())
        stages = [
            replace(s, process=MAIN_PROCESS, lane=s.lane if unique else f"{s.process}.{s.lane}") for s in self.stages.values()
        ]
        return PipelineConfig(self.name, self.entry, stages, info=self.info, check=self.check)

    @property
    def lanes(self) -> dict[str, list[StageConfig]]:
        """Lane name -> its stages, in declaration order."""
        lanes: dict[str, list[StageConfig]] = {}
        for stage in self.stages.values():
            lanes.setdefault(stage.lane, []).append(stage)
        return lanes

    def plan(self, request: Request) -> Plan:
        """Live = reachable from the entry by this request's routes, and leading to a terminal that it asked for.

        Raises Refused by name when a wanted terminal is on no path.
        """
        if self.check is not None:
            self.check(request)
        taken: dict[str, frozenset[str]] = {}

        def onward(name: str) -> tuple[str, ...]:
            stage = self.stages[name]
            every = stage.next + stage.stream_to
            if stage.route_fn is None:
                taken[name] = frozenset(every)
                return every
            chosen = frozenset(stage.route_fn(request))
            if chosen - set(every):
                raise ConfigError(f"{name}.route_fn chose {sorted(chosen - set(every))}: not in next or stream_to")
            taken[name] = chosen
            return tuple(n for n in every if n in chosen)

        reached = walk([self.entry], onward)
        ends = self._ends(request, reached)
        upstream: dict[str, list[str]] = {n: [] for n in reached}
        for name in reached:
            for target in onward(name):
                upstream[target].append(name)
        live = walk(ends.values(), lambda n: upstream[n])

        def kept(name: str, targets: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(t for t in targets if t in live and t in taken[name])

        after = {n: kept(n, self.stages[n].next) for n in live}
        stream = {n: kept(n, self.stages[n].stream_to) for n in live}
        results = {n: frozenset(u for u in live if n in after[u]) for n in live}
        streams = {n: frozenset(u for u in live if n in stream[u]) for n in live}
        side = frozenset(n for n in live if self.stages[n].side)
        if side.issuperset(ends.values()):
            side = frozenset()
        return Plan(tuple(sorted(live, key=self.order.__getitem__)), after, stream, results, streams, ends, side)

    def _ends(self, request: Request, reached: set[str]) -> dict[str, str]:
        if request.kind == "prepare":
            ends = {f"prepared:{n}": n for n in sorted(reached) if self.stages[n].prepares}
        else:
            makers = {s.terminal: s.name for s in self.stages.values() if s.terminal and s.name in reached}
            ends = {t: makers[t] for t in request.terminals if t in makers}
            missing = sorted(set(request.terminals) - set(ends))
            if missing:
                raise Refused(
                    f"pipeline {self.name!r} makes no {' and no '.join(missing)} for this request",
                    code="unsupported_value",
                    param="modalities",
                )
        if not ends:
            raise Refused(f"pipeline {self.name!r} has nothing to make for this request", code="unsupported_value")
        return ends
