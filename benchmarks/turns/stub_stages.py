"""Stages of fixed delays in the places of the models: only waiting, no work. The runtime, the session and the ears are real.

transcript 50 ms after it was asked for (read once, however many ask: as the real one's cache does); first token 60 ms, then
10 ms a token; first audio 80 ms after the first clause, then faster than it is played.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.local.pipeline import route_entry
from antiphon.pipelines.local.prepared import Prepared, Transcripts, last_transcript, merge_transcripts
from antiphon.pipelines.local.spoken import SpokenClause
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, AudioResult, Mark, TextDelta, TextResult, TranscriptResult
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import CLIENT, Chunk, Emit, Inputs, Ready, Request, Stage, Wait

HERE = "benchmarks.turns.stub_stages"
ASR_S, FIRST_TOKEN_S, TOKEN_S, FIRST_AUDIO_S = 0.05, 0.06, 0.01, 0.08
WORDS = ("It", " is", " half", " past", " ten", ".", " Would", " you", " like", " anything", " else", "?")
CHUNK = AUDIO_RATE // 50
CLAUSE_CHUNKS, CHUNK_S = 50, 0.005


@dataclass(eq=False)
class Due:
    """A task that waits for a moment."""

    at: float
    made: int = 0
    results: int = 0
    clauses: list[SpokenClause] = field(default_factory=list)
    left: int = 0
    text_end: int = 0
    over: bool = False


class StubTranscriber(Stage[Due]):
    def __init__(self) -> None:
        self._done: dict[str, float] = {}

    def open(self, request: Request, inputs: Inputs) -> Due:
        prepared: Prepared = inputs
        now = time.monotonic()
        at = max((self._done.setdefault(clip.key, now + ASR_S) for clip in prepared.clips), default=now)
        return Due(at, results=len(prepared.clips))

    def poll(self, task: Due, now: float) -> Ready | Wait:
        return Ready() if now >= task.at else Wait(until=task.at)

    def step(self, batch: Sequence[Due], emit: Emit) -> None:
        for task in batch:
            emit.result(task, Transcripts((TranscriptResult("what time is it now"),) * task.results))


class StubThinker(Stage[Due]):
    def open(self, request: Request, inputs: Inputs) -> Due:
        body: GenerateRequest = request.body
        return Due(
            time.monotonic() + (0.0 if body.kind == "prepare" else FIRST_TOKEN_S), made=-1 if body.kind == "prepare" else 0
        )

    def poll(self, task: Due, now: float) -> Ready | Wait:
        return Ready() if now >= task.at else Wait(until=task.at)

    def step(self, batch: Sequence[Due], emit: Emit) -> None:
        for task in batch:
            if task.made in (-1, len(WORDS)):
                emit.result(task, TextResult())
                continue
            emit.chunk(task, TextDelta(WORDS[task.made]))
            task.made += 1
            task.at += TOKEN_S


class StubDecode(Stage[Due]):
    def open(self, request: Request, inputs: Inputs) -> Due:
        return Due(0.0)

    def feed(self, task: Due, chunk: Chunk) -> None:
        task.over = task.over or chunk.last
        if not chunk.last:
            task.clauses.append(chunk.data)

    def poll(self, task: Due, now: float) -> Ready | Wait:
        return Ready() if task.clauses or task.over else Wait()

    def step(self, batch: Sequence[Due], emit: Emit) -> None:
        for task in batch:
            if task.clauses:
                emit.chunk(task, task.clauses.pop(0))
            else:
                emit.result(task, TextResult())


class StubVoice(Stage[Due]):
    """A second of 440 Hz for every clause."""

    def open(self, request: Request, inputs: Inputs) -> Due:
        return Due(0.0)

    def feed(self, task: Due, chunk: Chunk) -> None:
        task.over = task.over or chunk.last
        if not chunk.last:
            task.clauses.append(chunk.data)

    def poll(self, task: Due, now: float) -> Ready | Wait:
        if not task.left and not task.clauses:
            return Ready() if task.over else Wait()
        if not task.left:
            return Ready()
        return Ready() if now >= task.at else Wait(until=task.at)

    def step(self, batch: Sequence[Due], emit: Emit) -> None:
        for task in batch:
            if task.left:
                at = np.arange(task.made, task.made + CHUNK) / AUDIO_RATE
                task.made += CHUNK
                task.left -= 1
                marks = (Mark(task.made, task.text_end),) if not task.left else ()
                pcm = (12_000 / 32_768 * np.sin(2 * np.pi * 440 * at)).astype(np.float32)
                emit.chunk(task, AudioDelta(pcm, marks), span_ms=20.0)
                task.at += CHUNK_S
            elif task.clauses:
                task.text_end = task.clauses.pop(0).end
                task.left, task.at = CLAUSE_CHUNKS, time.monotonic() + FIRST_AUDIO_S
            else:
                emit.result(task, AudioResult(task.made))


def build() -> PipelineConfig:
    """The local pipeline's shape and its segmenter, with stubs for models."""
    local = "antiphon.pipelines.local"
    stages = [
        StageConfig(
            name="preprocessing",
            factory=f"{local}.preprocessing:Preprocessing",
            lane="front",
            next=("transcriber", "thinker", "segmenter"),
            route_fn=route_entry,
        ),
        StageConfig(
            name="transcriber",
            factory=f"{HERE}:StubTranscriber",
            lane="mind",
            next=("thinker",),
            terminal="transcript",
            project_payload={CLIENT: last_transcript},
            max_open=512,
        ),
        StageConfig(
            name="thinker",
            factory=f"{HERE}:StubThinker",
            lane="mind",
            stream_to=("decode", "segmenter"),
            merge_fn=merge_transcripts,
            credits=4096,
            prepares=True,
            max_open=512,
        ),
        StageConfig(name="decode", factory=f"{HERE}:StubDecode", lane="mind", terminal="text", credits=4096, max_open=512),
        StageConfig(
            name="segmenter", factory=f"{local}.segmenter:Segmenter", lane="voice", stream_to=("talker",), max_open=512
        ),
        StageConfig(
            name="talker",
            factory=f"{HERE}:StubVoice",
            lane="voice",
            terminal="audio",
            start_on={"segmenter": 1},
            max_open=512,
        ),
    ]
    info = PipelineInfo(
        name="stubs",
        model="stubs",
        terminals={"chat": ("text", "audio", "transcript"), "transcription": ("transcript",), "speech": ("audio",)},
        inputs={"chat": ("text", "audio"), "transcription": ("audio",), "speech": ("text",)},
        voices=("stub",),
        languages=("en",),
        early_responses=True,
    )
    return PipelineConfig("stubs", "preprocessing", stages, info=info)
