"""One lane on its thread: build its stages there, warm them up, run until stopped."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.pipelines.async_lane import AsyncLane
from antiphon.pipelines.errors import ConfigError, PipelineError
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.lane import Exchange, Station
from antiphon.pipelines.messages import ToLane
from antiphon.pipelines.scheduler import SteppedLane
from antiphon.pipelines.stage import AsyncStage, Stage

log = logging.getLogger("antiphon.lane")

WATCH_S = 0.25
"""How often whoever watches lanes looks at them, here and in other processes."""
WARN_SHARE = 0.5
"""Of its limit, from which a step is reported."""
STEP_LIMIT_S = 120.0
"""Of one step, unless a placement says otherwise."""


def load_factory(path: str) -> Callable[..., Any]:
    """ "module.path:Name" -> the callable. Raises ConfigError."""
    module_name, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load {path!r}: {error}") from error
    if not callable(factory):
        raise ConfigError(f"{path!r} is not callable")
    return factory  # type: ignore[no-any-return]


def build_stage(config: StageConfig) -> Stage[Any] | AsyncStage:
    """Raises ConfigError naming the stage when the factory makes something else."""
    stage = load_factory(config.factory)(**config.factory_args)
    if not isinstance(stage, Stage | AsyncStage):
        raise ConfigError(f"{config.name}.factory made a {type(stage).__name__}, not a Stage")
    return stage


class LaneThread:
    """``ready`` and ``died`` are called on the lane's thread. ``put`` works from any thread once ready."""

    def __init__(
        self,
        name: str,
        pipeline: PipelineConfig,
        stages: Sequence[StageConfig],
        exchange: Exchange,
        *,
        ready: Callable[[str], None],
        died: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.lane: SteppedLane | AsyncLane | None = None
        self._pipeline = pipeline
        self._stages = stages
        self._exchange = exchange
        self._clock = clock
        self._ready = ready
        self._died = died
        self._stopping = False
        self._asked_at: float | None = None
        self._thread = threading.Thread(target=self._main, name=f"lane-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, message: ToLane) -> None:
        lane = self.lane
        if isinstance(lane, SteppedLane):
            lane.mail.put(message)
        elif lane is not None:
            lane.put(message)
        else:
            raise RuntimeError(f"lane {self.name} is not ready")

    def stop(self) -> None:
        """From any thread. A lane that is still starting ends when the stage under way has been built or warmed up."""
        self._stopping = True
        if self.lane is not None:
            self.lane.stop()

    def join(self, timeout: float | None = None) -> bool:
        """True when the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def stepping(self) -> tuple[str, float] | None:
        """The stage whose code is running and since when (monotonic seconds), None while the lane waits. Of an async lane:
        since when its loop owes an answer to what the last call of this asked it. Called by one thread."""
        lane = self.lane
        if isinstance(lane, SteppedLane):
            since = lane.since
            return None if since is None else (lane.at or self._stages[0].name, since)
        if self._asked_at is not None:
            return self._stages[0].name, self._asked_at
        if lane is not None and lane.loop is not None and not lane.loop.is_closed():
            self._asked_at = self._clock()
            lane.loop.call_soon_threadsafe(self._answered)
        return None

    def _answered(self) -> None:
        self._asked_at = None

    # -- on the thread
    def _main(self) -> None:
        try:
            built = {config.name: build_stage(config) for config in self._stages}
            if all(isinstance(stage, AsyncStage) for stage in built.values()):
                asyncio.run(self._serve(built))
                return
            lane = SteppedLane(self.name, self._exchange, self._clock)
            for config in self._stages:
                stage = built[config.name]
                if not isinstance(stage, Stage):
                    raise ConfigError(f"lane {self.name!r} mixes stepped and async stages ({config.name} is async)")
                if self._stopping:
                    break
                stage.warm_up()
                lane.stations[config.name] = self._station(config, stage)
            self.lane = lane
            if self._stopping:  # read after the lane can be seen: a stop is not missed in between
                lane.stop()
            else:
                self._ready(self.name)
            lane.run()
            for station in lane.stations.values():
                station.stage.shut_down()
        except PipelineError as error:
            self._died(self.name, error)
        except Exception as error:
            log.exception("lane %s ended", self.name)
            self._died(self.name, error)

    def _station(self, config: StageConfig, stage: Any) -> Station[Any]:
        return Station(config, stage, self._pipeline.order[config.name], config.name == self._pipeline.entry)

    async def _serve(self, built: dict[str, Stage[Any] | AsyncStage]) -> None:
        lane = AsyncLane(self.name, self._exchange, self._clock)
        for config in self._stages:
            stage = built[config.name]
            await stage.warm_up()  # type: ignore[misc]
            lane.stations[config.name] = self._station(config, stage)
        lane.loop = asyncio.get_running_loop()
        self.lane = lane
        if self._stopping:
            lane.stop()
        else:
            self._ready(self.name)
        await lane.run()
