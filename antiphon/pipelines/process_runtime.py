"""The graph over several processes: a Backend for ``Client`` with the same declaration and the same promises.

Stages whose process is "main" run on threads here, beside the door; every other process is started, watched and
restarted. What a dying process takes with it are the requests that were in it, and no others.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from antiphon.pipelines.coordinator import Coordinator
from antiphon.pipelines.errors import ConfigError, PipelineError, StageFailed, WireError
from antiphon.pipelines.graph import MAIN_PROCESS
from antiphon.pipelines.handle import Handle
from antiphon.pipelines.homes import Homes
from antiphon.pipelines.launcher import Launcher, SpawnLauncher
from antiphon.pipelines.local_lanes import LocalLanes, health
from antiphon.pipelines.messages import Credit, Feed, Forget, Give, Open, ToCoordinator, ToLane
from antiphon.pipelines.placement import (
    PipelineSpec,
    Placement,
    WorkerSpec,
    credits_at_once,
    environment,
    groups,
    packages,
    settle,
)
from antiphon.pipelines.relay.ref import Kind
from antiphon.pipelines.run_folder import RunFolder
from antiphon.pipelines.runtime import LoopDriver
from antiphon.pipelines.sockets import Sockets
from antiphon.pipelines.stage import CLIENT
from antiphon.pipelines.supervision import Crew, Member
from antiphon.pipelines.wire import (
    DOOR,
    Beat,
    Begin,
    Body,
    Gone,
    LaneReady,
    Mail,
    Message,
    Peers,
    Post,
    Reader,
    StartFailed,
    Stop,
    ToDoor,
    Up,
    summed,
    untravelled,
)  # fmt: skip

log = logging.getLogger("antiphon.runtime")

FRAMES_A_TURN = 256


class ProcessRuntime:
    """``placement``: replicas, threads, limits by process group. Raises ConfigError for what it does not execute."""

    def __init__(
        self,
        pipeline: PipelineSpec,
        placement: Placement | None = None,
        *,
        launcher: Launcher | None = None,
        max_requests: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipeline = pipeline
        self.config = config = settle(pipeline.build())
        self.placement = placement or Placement()
        self.placement.check(config)
        self._driver = LoopDriver(lambda now: self.coordinator.turn(now), clock)
        self.coordinator = Coordinator(config, self, clock, max_requests=max_requests, wake=self._driver.wake)
        self._process_of = {name: s.process for name, s in config.stages.items()}
        self._lane_of = {name: s.lane for name, s in config.stages.items()}
        self._process_of_lane = {s.lane: s.process for s in config.stages.values()}
        self._mode_of: dict[str, Kind | None] = {name: s.relay or None for name, s in config.stages.items()}  # type: ignore[misc]
        self._groups = groups(config)
        self._at_once = credits_at_once(config)
        here = [lane for lane, process in self._process_of_lane.items() if process == MAIN_PROCESS]
        limit = self.placement.of(MAIN_PROCESS).step_limit_s
        self._lanes = LocalLanes(config, here, self, self.coordinator, step_limit_s=limit, clock=clock)
        self._crew = Crew(self, launcher or SpawnLauncher(), clock)
        self._homes = Homes()
        self._progress: Callable[[str], None] | None = None
        self._folder: RunFolder | None = None
        self._sockets: Sockets | None = None

    # -- Backend
    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Start every process and lane in parallel. A failed start is rolled back whole and raised by name."""
        self._progress = progress
        self._driver.attach()
        try:
            self._folder = RunFolder()
            self._sockets = Sockets(self._folder.path, DOOR, ToDoor, packages(self.config, self.pipeline))
        except (OSError, ConfigError) as error:
            await self.stop()
            raise ConfigError(f"no room for sockets and shared memory between processes: {error}") from error
        self._sockets.pool.prepare()
        asyncio.get_running_loop().add_reader(self._sockets.descriptor, self._on_mail)
        for process, stages in self._groups.items():
            if process != MAIN_PROCESS:
                options = self.placement.of(process)
                for number in range(options.replicas):
                    self._crew.add(Member(f"{process}.{number}", process, stages, options))
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._lanes.start(progress))
                starting.create_task(self._crew.start())
        except* PipelineError as failed:
            await self.stop()
            raise _first(failed) from None
        except* BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the processes, then this one's lanes; sockets, shared memory and the run folder are gone afterwards."""
        await self._crew.stop()
        await self._lanes.stop()
        self._driver.detach()
        if self._sockets is not None:
            asyncio.get_running_loop().remove_reader(self._sockets.descriptor)
            self._sockets.close()
            self._sockets = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def health(self) -> dict[str, Any]:
        """``lanes``: "ready" or why not, as far as anyone can be served; ``stages``: those that cannot serve; ``processes``."""
        away = self.coordinator.unavailable
        return {
            "lanes": health(self.config, away),
            "unavailable": dict(away),
            "processes": {m.name: m.report() for m in self._crew.members.values()},
        }

    # -- Switch, on the loop
    def to_lanes(self, lanes: Iterable[str], message: ToLane) -> None:
        by_process: dict[str, list[str]] = {}
        for lane in lanes:
            by_process.setdefault(self._process_of_lane[lane], []).append(lane)
        if isinstance(message, Open):
            self._begin(by_process, message)
            return
        for process, some in by_process.items():
            if process == MAIN_PROCESS:
                for lane in some:
                    self._lanes.put(lane, message)
            elif isinstance(message, Forget):
                self._homes.forget(process, message.conversation)
                for member in self._crew.ready(process):
                    self._send(member.name, Mail(tuple(some), message))
            else:
                handle = self.coordinator.live.get(message.key)
                if handle is not None and process in handle.places:
                    self._send(handle.places[process], Mail(tuple(some), message))

    def awaits(self, lanes: Iterable[str]) -> set[str]:
        """All but the entry's: what the entry sends may be faster than this loop, what it gets comes after its Open."""
        processes = {self._process_of_lane[lane] for lane in lanes}
        return processes - {MAIN_PROCESS, self._process_of[self.config.entry]}

    def to_stage(self, stage: str, message: ToLane) -> None:
        """Also the Exchange of this process's own lanes: called on any of its threads."""
        process = self._process_of[stage]
        if process == MAIN_PROCESS:
            self._lanes.put(self._lane_of[stage], message)
            return
        handle = self.coordinator.live.get(message.key)  # type: ignore[union-attr]
        if handle is None or process not in handle.places:
            return  # the request was released a moment ago
        if isinstance(message, Give) and message.source == CLIENT:
            if len(handle.places) == 1:
                return  # its Begin said so
            self._send(handle.places[process], Body(message.key, stage))
            return
        if isinstance(message, Credit):
            credit = summed(handle.owed, message, self._at_once[stage])
            if credit is None:
                return
            message = credit
        mode = self._mode_of.get(message.source) if isinstance(message, Give | Feed) else None
        self._send(handle.places[process], Mail((), message), mode)

    def to_coordinator(self, message: ToCoordinator) -> None:
        self.coordinator.post(message)

    def _begin(self, by_process: dict[str, list[str]], message: Open) -> None:
        handle = self.coordinator.live[message.key]
        handle.places = {p: DOOR if p == MAIN_PROCESS else self._place(p, handle) for p in by_process}
        entry = self._process_of[self.config.entry]
        for process, some in by_process.items():
            if process == MAIN_PROCESS:
                for lane in some:
                    self._lanes.put(lane, message)
            else:
                begin = Begin(tuple(some), message, handle.places, process != entry, start=by_process.keys() == {entry})
                self._send(handle.places[process], begin)

    def _place(self, process: str, handle: Handle) -> str:
        load = {m.name: 0 for m in self._crew.ready(process)}
        if len(load) > 1:
            for other in self.coordinator.live.values():
                if other is not handle and other.places.get(process) in load:
                    load[other.places[process]] += 1
        return self._homes.choose(process, handle.request.conversation, load)

    def _send(self, name: str, message: Message, mode: Kind | None = None) -> None:
        if self._sockets is None:
            return  # it has stopped
        try:
            self._sockets.links.send(name, message, mode)
        except WireError as error:
            log.error("%s", error)
            failed = untravelled(message)
            if failed is not None:
                self.coordinator.post(failed)

    # -- mail, on the loop
    def _on_mail(self) -> None:
        """The descriptor tells of a change once: read until there is nothing."""
        sockets = self._sockets
        if sockets is None:
            return
        with self._driver.turning():
            for _ in range(FRAMES_A_TURN):
                try:
                    frame = sockets.inbox.recv(zmq.NOBLOCK)
                except zmq.Again:
                    return
                self._take(frame, sockets.reader)
        asyncio.get_running_loop().call_soon(self._on_mail)

    def _take(self, frame: bytes, reader: Reader) -> None:
        try:
            self._handle(reader.read(frame))
        except WireError as error:
            log.error("%s", error)
            failed = reader.failure(frame)
            if failed is not None:
                self.coordinator.post(failed)

    def _handle(self, message: ToDoor) -> None:
        match message:
            case Post(messages=messages):
                for each in messages:
                    self.coordinator.post(each)
            case Mail(message=inner):
                stage = getattr(inner, "stage", "")
                if self._process_of.get(stage) != MAIN_PROCESS:
                    raise WireError(f"mail for stage {stage!r} came to the door: refused")
                self._lanes.put(self._lane_of[stage], inner)
            case Beat():
                self._crew.beat(message)
            case LaneReady(owner=owner, lane=lane):
                member = self._crew.heard_from(owner)
                if member is not None and self._progress is not None and member.generation == 0:
                    self._progress(lane if member.options.replicas == 1 else f"{lane} ({member.name})")
            case Up(owner=owner):
                self._crew.is_up(owner)
            case StartFailed():
                self._crew.start_failed(message)

    # -- Owner of the crew
    def spec(self, member: Member) -> WorkerSpec:
        assert self._folder is not None and self._sockets is not None
        self._sockets.links.owners[member.name] = member.owner
        return WorkerSpec(
            name=member.name,
            process=member.process,
            generation=member.generation,
            folder=str(self._folder.path),
            door=DOOR,
            pipeline=self.pipeline,
            env=environment(member.options),
            sys_path=[p for p in sys.path if p],
            step_limit_s=member.options.step_limit_s,
            log_level=logging.getLogger().getEffectiveLevel(),
        )

    def member_up(self, member: Member) -> None:
        """Everyone learns where everyone is; then it is given requests."""
        ready = [m for m in self._crew.members.values() if m.state == "ready"]
        owners = {DOOR: DOOR, **{m.name: m.owner for m in ready}}
        for other in ready:
            self._send(other.name, Peers(owners))
        for stage in member.stages:
            self.coordinator.unavailable.pop(stage, None)
        if member.generation > 0:
            log.warning("process %s serves again", member.name)

    def member_down(self, member: Member) -> None:
        """Only the requests that had something inside fail, and may be tried again; the rest goes on."""
        owner = member.owner
        if self._sockets is not None:
            self._sockets.peer_gone(member.name, owner)
        others = [m for m in self._crew.members.values() if m.state == "ready"]
        for other in others:
            self._send(other.name, Gone(member.name, owner))
        self._homes.lost(member.name)
        self.member_leaving(member)
        served = [h for h in self.coordinator.live.values() if h.places.get(member.process) == member.name]
        lanes = {self._lane_of[stage] for stage in member.stages}
        lost = StageFailed(
            member.stages[0], "a process of the model ended unexpectedly; please retry", code="server_error", retryable=True
        )
        with self._driver.turning():
            self.coordinator.lanes_lost(lanes, lost, {h.key for h in served})
        for handle in served:
            del handle.places[member.process]  # its next life knows nothing of them

    def member_leaving(self, member: Member) -> None:
        """From now on it is given nothing: what only it could serve is refused by name."""
        if not self._crew.ready(member.process):
            for stage in member.stages:
                self.coordinator.unavailable[stage] = "its process ended and is being started again"

    def tell_to_stop(self, member: Member) -> None:
        self._send(member.name, Stop())

    def life_over(self, member: Member) -> None:
        """Its files go, also when it has never served. Who still maps one keeps its memory until he lets go."""
        if self._folder is not None:
            for pattern in (f"{member.owner}-*", f"{member.owner}.sock"):
                for file in self._folder.path.glob(pattern):
                    file.unlink(missing_ok=True)


def _first(failed: BaseExceptionGroup[PipelineError]) -> PipelineError:
    found: Any = failed
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, PipelineError)
    return found
