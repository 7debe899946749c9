"""Who has sound in hand waits a little for who waits for text, and takes in nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from antiphon.pipelines.engines.torch.sampling import Sampler, Sampling
from antiphon.pipelines.qwen3_omni.params import Chunking
from antiphon.pipelines.qwen3_omni.talker import COMPANY_S, SPARE_S, Talker, Task
from antiphon.pipelines.stage import Ready, Wait
from tests.qwen3_omni.driver import Bench


def speaking(talker: Talker, frames: int, began: float, stepped: float) -> Task:
    """A row in the middle of its answer."""
    task = Task("ethan", Sampler(Sampling(), 8, torch.device("cpu")), 100, Chunking(2, 10))
    task.carried, task.frames, task.began, task.stepped = torch.zeros(1), frames, began, stepped
    talker._open.add(task)
    return task


@pytest.fixture
def talker(bench: Bench) -> Iterator[Talker]:
    yield bench.talker
    bench.talker._open.clear()


def test_it_waits_for_a_neighbour_that_will_soon_have_text(talker: Talker) -> None:
    ahead = speaking(talker, frames=12, began=10.0, stepped=10.2)  # 0.96 s of sound from 10.0 on
    ahead.text.append(1)
    assert talker.poll(ahead, 10.2) == Ready(), "nobody to wait for"
    behind = speaking(talker, frames=2, began=10.1, stepped=10.15)
    assert talker.poll(behind, 10.2) == Wait()
    assert talker.poll(ahead, 10.2) == Wait(until=10.15 + COMPANY_S, hungry=False)
    assert talker.poll(ahead, 10.15 + COMPANY_S) == Ready(), "its text is slow"
    behind.text.append(2)
    assert talker.poll(ahead, 10.2) == talker.poll(behind, 10.2) == Ready()


def test_nobody_waits_into_a_silence(talker: Talker) -> None:
    speaking(talker, frames=2, began=10.8, stepped=10.8)
    ahead = speaking(talker, frames=12, began=10.0, stepped=10.75)
    ahead.text.append(1)
    dry = 10.0 + 12 * 0.08
    assert talker.poll(ahead, dry - SPARE_S - 0.001) == Wait(until=dry - SPARE_S, hungry=False)
    assert talker.poll(ahead, dry - SPARE_S) == Ready()
    # Frames sound in whole chunks: 2, then 10. Of 11 only 2 are in the listener's hands.
    ahead.frames = 11
    assert talker.poll(ahead, 10.16) == Ready()
