"""A real client over the tiny model that answers greedily and notes what it was asked: for tests of the doors."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.requests import GenerateRequest


class Noting(Client):
    """``asked``: (request, its generation), in order. ``frames`` bounds every speech; a door cannot set that itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.frames = 120
        self.asked: list[tuple[GenerateRequest, Generation]] = []

    def generate(self, request: GenerateRequest, *, streams_input: bool = False) -> Generation:
        if request.task == "chat" and "audio" in request.terminals:
            greedy = {"temperature": 0.0, "max_tokens": self.frames}
            request = msgspec.structs.replace(request, stage_params={"talker": greedy, **request.stage_params})
        generation = super().generate(request, streams_input=streams_input)
        self.asked.append((request, generation))
        return generation

    @property
    def answers(self) -> list[tuple[GenerateRequest, Generation]]:
        return [(r, g) for r, g in self.asked if r.task == "chat" and r.kind == "generate"]
