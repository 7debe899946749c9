"""A stub recogniser behind the real preprocessing stage: it tells how long what it got is, and at what pitch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.outputs import TextDelta, TextResult, TranscriptResult
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Emit, Request, Stage
from tests.realtime.stub_client import INFO


class StubEar(Stage[Any]):
    """For a transcription: a transcript. For a chat: the same as text."""

    def open(self, request: Request, inputs: Any) -> Any:
        return request, inputs

    def step(self, batch: Sequence[Any], emit: Emit) -> None:
        for task in batch:
            request, prepared = task
            pcm = np.concatenate([clip.pcm for clip in prepared.clips])
            spectrum = np.abs(np.fft.rfft(pcm[:16000] * np.hanning(len(pcm[:16000]))))
            hz = int(np.argmax(spectrum)) * 16000 / len(pcm[:16000])
            said = f"{hz:.0f} Hz"
            if request.body.task == "transcription":
                emit.result(task, TranscriptResult(said, "en", len(pcm) / 16000))
            else:
                emit.chunk(task, TextDelta(said))
                emit.result(task, TextResult())


def _route(request: Request) -> tuple[str, ...]:
    return ("reader",) if request.body.task == "transcription" else ("thinker",)


def stub_ear() -> Client:
    here = f"{__name__}:StubEar"
    entry = StageConfig(
        name="preprocessing", factory="antiphon.pipelines.local.preprocessing:Preprocessing", next=("reader", "thinker"),
        route_fn=_route, lane="front",
    )  # fmt: skip
    reader = StageConfig(name="reader", factory=here, terminal="transcript", lane="mind")
    thinker = StageConfig(name="thinker", factory=here, terminal="text", lane="mind")
    return Client(LocalRuntime(PipelineConfig("stub", "preprocessing", [entry, reader, thinker], info=INFO)))
