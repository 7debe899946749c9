"""A stub of a model for the real graph runtime: one word, or 80 ms of sound, a step, without end until it is closed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.outputs import AudioDelta, AudioResult, TextDelta, TextResult, Usage
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Emit, Reason, Request, Stage
from tests.realtime.stub_client import INFO

CLOSED: list[tuple[str, str, Reason, int]] = []
"""Request, stage, reason, steps at the close: written by the lanes' threads."""
OPENED: list[tuple[str, str]] = []


@dataclass
class Task:
    request: Request
    steps: int = 0


class StubModel(Stage[Task]):
    """``kind`` text or audio; ``step_s`` is what a step takes. It ends after ``sampling.max_tokens`` steps."""

    def __init__(self, name: str, kind: str, step_s: float) -> None:
        self.name, self.kind, self.step_s = name, kind, step_s

    def open(self, request: Request, inputs: Any) -> Task:
        OPENED.append((request.id, self.name))
        return Task(request)

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        time.sleep(self.step_s)
        for task in batch:
            task.steps += 1
            if self.kind == "text":
                emit.chunk(task, TextDelta(f"{task.steps} "))
            else:
                emit.chunk(task, AudioDelta(np.full(1920, 0.1, dtype=np.float32)), span_ms=80.0)
            if task.steps >= (task.request.body.sampling.max_tokens or 10**9):
                result = (
                    TextResult("length", Usage(3, 0, task.steps)) if self.kind == "text" else AudioResult(task.steps * 1920)
                )
                emit.result(task, result)

    def close(self, task: Task, reason: Reason) -> None:
        CLOSED.append((task.request.id, self.name, reason, task.steps))


def stub_pipeline(step_s: float = 0.005) -> Client:
    here = f"{__name__}:StubModel"

    def route(request: Request) -> tuple[str, ...]:
        return ("talker",)

    thinker = StageConfig(
        name="thinker", factory=here, lane="mind", stream_to=("talker",), route_fn=route, terminal="text", start_on={},
        factory_args={"name": "thinker", "kind": "text", "step_s": step_s}, credits=4096,
    )  # fmt: skip
    talker = StageConfig(
        name="talker", factory=here, lane="voice", terminal="audio",
        factory_args={"name": "talker", "kind": "audio", "step_s": step_s},
    )  # fmt: skip
    config = PipelineConfig("stub", "thinker", [thinker, talker], info=INFO)
    return Client(LocalRuntime(config))
