"""The runtime without threads: every actor's turn is taken by the test, in any order, on a fake clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.lane import Station
from antiphon.pipelines.lane_thread import build_stage
from antiphon.pipelines.messages import Event, ToCoordinator, ToLane
from antiphon.pipelines.scheduler import SteppedLane
from tests.pipelines.dummies import World


def stage(name: str, kind: str = "shot", *, lane: str = "main", max_open: int = 8, **more: Any) -> StageConfig:
    """A StageConfig over ``Dummy``; dummy arguments and declaration fields by keyword."""
    dummy = {k: more.pop(k) for k in ("take", "span_ms", "delay_s", "fanout") if k in more}
    return StageConfig(
        name=name,
        factory="tests.pipelines.dummies:Dummy",
        factory_args={"name": name, "kind": kind, "max_open": max_open, **dummy},
        lane=lane,
        max_open=max_open,
        **more,
    )


class ByHand:
    def __init__(self, config: PipelineConfig, world: World, *, max_requests: int = 1000) -> None:
        self.config = config
        self.world = world
        self.coordinator = Coordinator(config, self, world.clock, max_requests=max_requests)
        self.lanes: dict[str, SteppedLane] = {}
        for name, stages in config.lanes.items():
            lane = SteppedLane(name, self, world.clock)
            for cfg in stages:
                built: Any = build_stage(cfg)
                lane.stations[cfg.name] = Station(cfg, built, config.order[cfg.name], cfg.name == config.entry)
            self.lanes[name] = lane
        self.wakes: dict[str, float | None] = {name: world.now for name in self.lanes}

    # -- Switch and Exchange
    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        for lane in lanes:
            self.lanes[lane].mail.put(message)

    def to_stage(self, stage: str, message: ToLane) -> None:
        self.to_lanes((self.config.stages[stage].lane,), message)

    def to_coordinator(self, message: ToCoordinator) -> None:
        self.coordinator.post(message)

    def awaits(self, lanes: Iterable[str]) -> set[str]:
        return set()

    # -- driving
    def turn(self, lane: str) -> None:
        self.wakes[lane] = self.lanes[lane].turn(self.world.now)

    def as_threads_would(self) -> None:
        """Each lane on mail or when it asked to be woken, then the coordinator."""
        for name, lane in self.lanes.items():
            wake = self.wakes[name]
            if not lane.mail.empty() or (wake is not None and wake <= self.world.now):
                self.turn(name)
        self.coordinator.turn(self.world.now)

    def run(self, handles: Iterable[Handle], *, dt: float = 0.01, turns: int = 3000) -> dict[Handle, list[Event | End]]:
        """Run and read everything until all have ended and the lanes are empty."""
        seen: dict[Handle, list[Event | End]] = {handle: [] for handle in handles}
        for _ in range(turns):
            self.as_threads_would()
            for handle, log in seen.items():
                while (event := handle.read()) is not None:
                    log.append(event)
            self.world.now += dt
            if self.idle:
                break
        return seen

    @property
    def idle(self) -> bool:
        """Every request ended and released, every slot, task and fence given back."""
        return not self.coordinator.live and all(
            not lane.riders
            and not lane.local
            and not lane.fences
            and lane.mail.empty()
            and not any(s.open or s.queued for s in lane.stations.values())
            for lane in self.lanes.values()
        )
