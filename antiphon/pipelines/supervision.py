"""Processes kept alive: started together, watched, restarted with back-off. What a death means is the runtime's business.

A death is noticed by the launcher's sentinel. A hang is noticed by the watchdog: a step past its limit, or no sign of life
for as long (a step that never gives the interpreter back), is reported by name and the process killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from antiphon.pipelines import errors
from antiphon.pipelines.errors import PipelineError, StageFailed
from antiphon.pipelines.lane_thread import WARN_SHARE, WATCH_S
from antiphon.pipelines.launcher import Launcher, ProcessHandle
from antiphon.pipelines.placement import ProcessOptions, WorkerSpec
from antiphon.pipelines.wire import Beat, StartFailed

log = logging.getLogger("antiphon.supervision")

FIRST_BACK_OFF_S = 0.5
MAX_BACK_OFF_S = 30.0
STABLE_S = 60.0
"""A process that served so long starts its back-off anew."""
STOP_S = 12.0
State = Literal["starting", "ready", "restarting", "stopped"]


class Member:
    """One process of a group over all of its lives."""

    def __init__(self, name: str, process: str, stages: Sequence[str], options: ProcessOptions) -> None:
        self.name = name
        self.process = process
        self.stages = tuple(stages)
        self.options = options
        self.state: State = "starting"
        self.generation = 0
        self.why = ""
        """What ended its last life."""
        self.handle: ProcessHandle | None = None
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = 0.0
        self.warned = False
        self.stepping: dict[str, tuple[str, float]] = {}

    @property
    def owner(self) -> str:
        """The name of its present life."""
        return f"{self.name}.{self.generation}"

    def overdue(self, now: float, share: float = 1.0) -> str:
        """What is wrong with it, or nothing. ``share`` of the limit."""
        limit = self.options.step_limit_s * share
        for stage, seconds in self.stepping.values():
            if seconds > limit:
                return (
                    f"stage {stage!r} has been in one step for {seconds:.1f} s (its limit is {self.options.step_limit_s:g} s)"
                )
        if now - self.heard > limit + WATCH_S:
            inside = ", ".join(stage for stage, _ in self.stepping.values())
            return f"no sign of life for {now - self.heard:.1f} s" + (f"; last seen in a step of {inside}" if inside else "")
        return ""

    def report(self) -> dict[str, object]:
        """For /health."""
        told: dict[str, object] = {"state": self.state, "stages": list(self.stages), "restarts": self.generation}
        if self.handle is not None and not self.handle.died.done():
            told["place"] = self.handle.place
        if self.why:
            told["last_end"] = self.why
        return told


class Owner(Protocol):
    """Who the processes belong to; all calls come on its loop."""

    def spec(self, member: Member) -> WorkerSpec: ...

    def member_up(self, member: Member) -> None: ...

    def member_leaving(self, member: Member) -> None: ...

    def member_down(self, member: Member) -> None: ...

    def life_over(self, member: Member) -> None: ...

    def tell_to_stop(self, member: Member) -> None: ...


class Crew:
    """All members. ``start`` returns when all are up, or raises what kept the first of them down."""

    def __init__(self, owner: Owner, launcher: Launcher, clock: Callable[[], float] = time.monotonic) -> None:
        self.members: dict[str, Member] = {}
        self._owner = owner
        self._launcher = launcher
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.pause: Callable[[float], Awaitable[None]] = asyncio.sleep
        """How a restart waits."""

    def add(self, member: Member) -> None:
        self.members[member.name] = member

    def ready(self, process: str) -> list[Member]:
        """Those of a group that can serve."""
        return [m for m in self.members.values() if m.process == process and m.state == "ready"]

    async def start(self) -> None:
        """In parallel. Raises PipelineError by name; the caller rolls back by ``stop``."""
        keeping = [asyncio.create_task(self._keep(m), name=f"keep {m.name}") for m in self.members.values()]
        self._tasks = [*keeping, asyncio.create_task(self._watch(), name="watchdog")]
        ups = [m.up for m in self.members.values()]
        done, _ = await asyncio.wait(ups, return_when=asyncio.FIRST_EXCEPTION) if ups else (set(), set())
        for up in done:
            up.result()

    async def stop(self) -> None:
        """Tell all to end, wait, kill what does not; nothing is left when it returns."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        running = [m for m in self.members.values() if m.handle is not None and not m.handle.died.done()]
        for member in running:
            self._owner.tell_to_stop(member)
        await asyncio.gather(*(m.handle.stop(STOP_S if m.state == "ready" else 0.0) for m in running if m.handle))
        for member in self.members.values():
            member.state = "stopped"
            member.handle = None
            if member.up.done() and not member.up.cancelled():
                member.up.exception()  # seen: the first one was raised by start

    # -- what a process says of itself
    def heard_from(self, owner: str) -> Member | None:
        """The member whose present life this is; None: it is late."""
        return next((m for m in self.members.values() if m.owner == owner and m.handle is not None), None)

    def beat(self, message: Beat) -> None:
        member = self.heard_from(message.owner)
        if member is not None:
            member.heard = self._clock()
            member.stepping = message.stepping

    def is_up(self, owner: str) -> None:
        member = self.heard_from(owner)
        if member is not None and not member.up.done():
            member.heard = self._clock()
            member.up.set_result(None)

    def start_failed(self, message: StartFailed) -> None:
        member = self.heard_from(message.owner)
        if member is not None and not member.up.done():
            member.up.set_exception(_error(member, message))

    # -- one member
    async def _keep(self, member: Member) -> None:
        back_off = 0.0
        while not self._stopping:
            began = self._clock()
            try:
                await self._live(member)
            except PipelineError as error:
                first = member.generation == 0
                member.why = str(error)
                await self._end(member)
                if first:
                    return  # the start has failed and says so
                log.error("process %s could not be started again: %s", member.name, error)
            self._owner.life_over(member)
            if self._clock() - began > STABLE_S:
                back_off = 0.0
            member.state = "restarting"
            await self.pause(back_off)
            back_off = min(max(FIRST_BACK_OFF_S, 2 * back_off), MAX_BACK_OFF_S)
            member.generation += 1
            member.up = asyncio.get_running_loop().create_future()

    async def _live(self, member: Member) -> None:
        """One life. Raises PipelineError when it could not start; returns when it has ended."""
        try:
            handle = member.handle = self._launcher.start(self._owner.spec(member))
        except OSError as error:
            member.up.set_exception(StageFailed(member.stages[0], f"no process could be started: {error.strerror}"))
            member.up.result()
            return
        member.heard = self._clock()
        member.stepping = {}
        limit = member.options.start_limit_s
        await asyncio.wait((member.up, handle.died), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if not member.up.done():
            ended = f"ended with status {handle.died.result()}" if handle.died.done() else f"was not ready within {limit:g} s"
            member.up.set_exception(StageFailed(member.stages[0], f"its process {member.name!r} {ended} while starting"))
        member.up.result()
        member.state = "ready"
        self._owner.member_up(member)
        status = await asyncio.shield(handle.died)
        member.why = member.why if member.state != "ready" else _ending(status)
        member.state = "restarting"
        log.error("process %s (%s) ended: %s", member.name, ", ".join(member.stages), member.why)
        self._owner.member_down(member)

    async def _end(self, member: Member) -> None:
        if member.handle is not None:
            member.handle.kill()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(member.handle.died)

    async def _watch(self) -> None:
        while True:
            slept = self._clock()
            await asyncio.sleep(WATCH_S)
            now = self._clock()
            late = now - slept - WATCH_S
            for member in self.members.values():
                if member.state != "ready" or member.handle is None or member.handle.died.done():
                    continue
                member.heard += late  # what this loop did not read is no silence of theirs
                why = member.overdue(now)
                slow = member.overdue(now, WARN_SHARE)
                if slow and not member.warned:
                    log.warning("process %s is slow: %s", member.name, slow)
                member.warned = bool(slow)
                if why:
                    log.error("process %s is killed: %s", member.name, why)
                    member.why = why
                    member.state = "restarting"
                    self._owner.member_leaving(member)
                    member.handle.kill()


def _ending(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _error(member: Member, message: StartFailed) -> PipelineError:
    kind = getattr(errors, message.kind, None)
    if kind in (errors.ConfigError, errors.WeightError, errors.WireError, PipelineError):
        return kind(message.message)  # type: ignore[no-any-return]
    return StageFailed(member.stages[0], message.message)
