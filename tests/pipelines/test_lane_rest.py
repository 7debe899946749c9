"""A lane at rest keeps nothing of what it has been sent: it may lie in shared memory that its sender wants back."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np

from antiphon.pipelines.messages import Give
from antiphon.pipelines.scheduler import SteppedLane
from antiphon.pipelines.stage import CLIENT


class NobodyStub:
    """An Exchange that is never called: the lane knows none of these requests."""

    def to_stage(self, stage: str, message: Any) -> None: ...

    def to_coordinator(self, message: Any) -> None: ...


def test_late_data_is_let_go_while_the_lane_waits() -> None:
    lane = SteppedLane("lane", NobodyStub(), time.monotonic)
    running = threading.Thread(target=lane.run)
    running.start()
    try:
        data = np.zeros(8)
        kept = weakref.ref(data)
        while lane.since is not None:  # it waits, so that its wait is what takes the message
            time.sleep(0.001)
        lane.mail.put(Give(("gone", 0), "stage", CLIENT, data))
        del data
        deadline = time.monotonic() + 5
        while kept() is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert kept() is None
    finally:
        lane.stop()
        running.join()
