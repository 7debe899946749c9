"""A stand-in for a model that knows what to say: the tiny Thinker with its scores bent towards a planted text.

Everything else is real: what a grammar forbids is still not said, and where nothing is planted the tiny model speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.thinker import Task, Thinker
from antiphon.pipelines.requests import TextPart
from antiphon.pipelines.stage import Request

PLANTS: dict[str, str] = {}
"""The last user message -> what the model wants to answer."""


class PlantedThinker(Thinker):
    """Wants to say what is planted for the request's last message, token by token, then to end."""

    def __init__(self, folder: str, **args: Any) -> None:
        super().__init__(folder, **args)
        self._wanted: dict[int, list[int]] = {}

    def open(self, request: Request, inputs: Any) -> Task:
        task = super().open(request, inputs)
        texts = [p.text for p in request.body.messages[-1].parts if isinstance(p, TextPart)]
        plant = PLANTS.get("".join(texts))
        if plant is not None:
            ids = self.tokenizer(plant, add_special_tokens=False)["input_ids"]
            self._wanted[id(task)] = [*ids, self.config.im_end_token_id]
        return task

    def close(self, task: Task, reason: Any) -> Any:
        self._wanted.pop(id(task), None)
        return super().close(task, reason)

    def _scores(self, tasks: Sequence[Task], hidden: torch.Tensor) -> torch.Tensor:
        scores = super()._scores(tasks, hidden).clone()
        for row, task in enumerate(tasks):
            wanted = self._wanted.get(id(task), [])
            if len(task.said) < len(wanted):
                scores[row, wanted[len(task.said)]] += 1000.0
        return scores


def planted(folder: str, **args: Any) -> PipelineConfig:
    """The pipeline with that Thinker."""
    config = build(folder, **args)
    stages = [
        replace(s, factory="tests.qwen3_omni.planted:PlantedThinker") if s.name == "thinker" else s
        for s in config.stages.values()
    ]
    return PipelineConfig(config.name, config.entry, stages, info=config.info, check=config.check)
