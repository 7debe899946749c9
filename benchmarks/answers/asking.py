"""The Thinker stage, driven by hand: one request at a time, as its lane would."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from antiphon.pipelines.local.thinker import Thinker, Thought
from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Ready, Request


@dataclass
class Heard:
    """``first_ms``: from open to the first chunk; ``calls``: index -> [name, arguments]."""

    text: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    result: TextResult | None = None
    first_ms: float = 0.0
    total_ms: float = 0.0


class _Listening:
    def __init__(self) -> None:
        self.heard = Heard()
        self.began = time.perf_counter()
        self.ended = False

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        heard = self.heard
        if isinstance(data, TextResult):
            return
        heard.first_ms = heard.first_ms or 1e3 * (time.perf_counter() - self.began)
        if isinstance(data, TextDelta):
            heard.text += data.text
        elif isinstance(data, CallDelta):
            call = heard.calls.setdefault(data.index, [data.name, ""])
            call[1] += data.arguments

    def result(self, task: Any, data: Any = None) -> None:
        self.heard.result, self.ended = data, True

    def failure(self, task: Any, error: Exception) -> None:
        raise error


def ask(thinker: Thinker, body: GenerateRequest) -> Heard:
    request = Request(id=body.id, terminals=body.terminals, body=body, conversation=body.conversation)
    listening = _Listening()
    task: Thought = thinker.open(request, body)
    while not listening.ended:
        assert isinstance(thinker.poll(task, 0.0), Ready)
        thinker.step([task], listening)
    thinker.close(task, "finished")
    listening.heard.total_ms = 1e3 * (time.perf_counter() - listening.began)
    return listening.heard
