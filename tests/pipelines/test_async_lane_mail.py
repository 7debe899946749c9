"""How an async lane hears of its mail: once for all that has come, and never too late."""

from __future__ import annotations

import asyncio
import threading
import time

from antiphon.pipelines.async_lane import AsyncLane
from antiphon.pipelines.messages import Forget, ToCoordinator, ToLane
from tests.hearing.waiting import until


class Nowhere:
    """An exchange of a lane that says nothing."""

    def to_stage(self, stage: str, message: ToLane) -> None: ...

    def to_coordinator(self, message: ToCoordinator) -> None: ...


class Counting(AsyncLane):
    """Counts its turns; ``got``: conversations whose Forget it has read."""

    def __init__(self) -> None:
        super().__init__("counted", Nowhere(), time.monotonic)
        self.turns = 0
        self.got: list[str] = []

    def turn(self) -> None:
        self.turns += 1
        super().turn()

    def forget_conversation(self, conversation: str) -> None:
        self.got.append(conversation)
        if conversation == "again":
            self.put(Forget("meanwhile"))


async def test_a_burst_is_one_turn_and_nothing_is_left_lying() -> None:
    """The credits of a whole text come back at once; a turn for each held up the lane that sent them."""
    lane = Counting()
    running = asyncio.create_task(lane.run())
    await asyncio.sleep(0)
    began = lane.turns
    for n in range(1000):
        lane.put(Forget(f"{n}"))
    await until(lambda: len(lane.got) >= 1000)
    await asyncio.sleep(0.01)  # in which there would be another turn
    assert (len(lane.got), lane.turns - began) == (1000, 1)
    lane.put(Forget("again"))
    await until(lambda: len(lane.got) >= 1002)
    assert lane.got[-2:] == ["again", "meanwhile"]

    def from_threads(name: str) -> None:
        for n in range(2000):
            lane.put(Forget(f"{name}{n}"))

    threads = [threading.Thread(target=from_threads, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    await until(lambda: not any(thread.is_alive() for thread in threads) and len(lane.got) >= 1002 + 6000)
    assert len(lane.got) == 1002 + 6000
    lane.stop()
    await running
