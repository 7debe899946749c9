"""What a step may cost: who is most urgent always goes, then whoever still fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.stage import Emit, Ready, Request, Stage, Wait
from tests.pipelines.by_hand import ByHand
from tests.pipelines.dummies import Script, new_world

BATCHES: list[list[int]] = []


class CostlyStub(Stage[list[int]]):
    """A task is what its steps cost, one after another."""

    def open(self, request: Request, inputs: object) -> list[int]:
        return [int(cost) for cost in request.body.route]

    def poll(self, task: list[int], now: float) -> Ready | Wait:
        return Ready(cost=task[0])

    def step(self, batch: Sequence[list[int]], emit: Emit) -> None:
        BATCHES.append([task.pop(0) for task in batch])
        for task in batch:
            if not task:
                emit.result(task)


@pytest.mark.parametrize(
    ("asked", "budget", "batches"),
    [
        # Two prompts and two answers: one slice a step, and nobody who speaks is left out.
        (["8-8", "8", "1-1-1", "1-1"], 10, [[8, 1, 1], [8, 1, 1], [8, 1]]),
        (["20", "1-1"], 10, [[20], [1], [1]]),
        (["1-1", "1", "1-1"], 2, [[1, 1], [1, 1], [1]]),
    ],
)
def test_a_step_is_filled_behind_the_most_urgent(asked: list[str], budget: int, batches: list[list[int]]) -> None:
    BATCHES.clear()
    stage = StageConfig(
        name="s", factory=f"{__name__}:CostlyStub", terminal="text", max_open=8, max_batch=8, step_budget=budget
    )
    by_hand = ByHand(PipelineConfig("p", "s", [stage]), new_world())
    handles = []
    for number, costs in enumerate(asked):
        request = Request(id=f"{number}", terminals=("text",), body=Script(route=tuple(costs.split("-"))))
        handles += [by_hand.coordinator.submit(request)]
        by_hand.world.now += 0.001  # the first is the most urgent
    by_hand.run(handles)
    assert batches == BATCHES
