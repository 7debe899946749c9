"""When a process that keeps ending is started again, by a clock of the test's own."""

from __future__ import annotations

import asyncio
from typing import Any

from antiphon.pipelines.placement import ProcessOptions, WorkerSpec
from antiphon.pipelines.supervision import Crew, Member


class FakeHandle:
    place = "nowhere"

    def __init__(self) -> None:
        self.died: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        if not self.died.done():
            self.died.set_result(-9)

    async def stop(self, grace_s: float) -> None:
        self.kill()


class FakeLauncher:
    def __init__(self) -> None:
        self.handles: list[FakeHandle] = []
        self._started = asyncio.Event()

    def start(self, spec: WorkerSpec) -> FakeHandle:
        self.handles.append(FakeHandle())
        self._started.set()
        return self.handles[-1]

    async def lives(self, count: int) -> None:
        """Wait until so many have been started."""
        while len(self.handles) < count:
            self._started.clear()
            await self._started.wait()


class FakeOwner:
    def __init__(self) -> None:
        self.log: list[str] = []

    def spec(self, member: Member) -> Any:
        return None

    def member_up(self, member: Member) -> None:
        self.log.append("up")

    def member_leaving(self, member: Member) -> None: ...

    def life_over(self, member: Member) -> None: ...

    def member_down(self, member: Member) -> None:
        self.log.append("down")

    def tell_to_stop(self, member: Member) -> None: ...


async def test_restarts_back_off_and_forgive_after_a_while() -> None:
    """0, 0.5, 1, 2, ... at most 30 s; after a minute of service the first restart is immediate again."""
    owner, launcher, waits = FakeOwner(), FakeLauncher(), []
    now = 0.0
    crew = Crew(owner, launcher, lambda: now)

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    crew.pause = pause
    member = Member("m.0", "m", ("stage",), ProcessOptions())
    crew.add(member)
    starting = asyncio.create_task(crew.start())
    for life in range(10):
        await launcher.lives(life + 1)
        if life % 3 != 1:  # some lives never come up
            crew.is_up(member.owner)
            await asyncio.sleep(0.01)
        if life == 8:
            now += 61
        launcher.handles[life].kill()
    await launcher.lives(11)
    await starting
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 0.0, 0.5]
    assert owner.log == ["up", "down"] * 7
    crew.is_up("m.0.3")
    assert not member.up.done(), "what an earlier life says is late"
    await crew.stop()
    assert all(h.died.done() for h in launcher.handles)
