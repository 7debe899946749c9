"""A hand driver: the stages as the graph would call them, in one thread, with everything they say recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from antiphon.pipelines.outputs import AudioDelta, AudioResult, Mark, TextDelta, TextResult
from antiphon.pipelines.qwen3_omni.aggregate import Aggregate
from antiphon.pipelines.qwen3_omni.code2wav import Code2Wav
from antiphon.pipelines.qwen3_omni.decode import Decode
from antiphon.pipelines.qwen3_omni.encoders import AudioEncoder, ImageEncoder
from antiphon.pipelines.qwen3_omni.payloads import (
    Finished,
    Frame,
    Heard,
    Said,
    Seen,
    Spoken,
    pictures_only,
    speech_only,
    without_media,
    without_prompt,
)
from antiphon.pipelines.qwen3_omni.preprocessing import Preprocessing
from antiphon.pipelines.qwen3_omni.talker import Talker
from antiphon.pipelines.qwen3_omni.thinker import Thinker
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Chunk, Ready, Request


@dataclass
class Made:
    """What one request brought out. ``order``: "token", "frame", "audio" as they came."""

    tokens: list[int] = field(default_factory=list)
    codes: list[list[int]] = field(default_factory=list)
    pieces: list[np.ndarray] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    text: str = ""
    order: list[str] = field(default_factory=list)
    finished: Finished | None = None
    text_result: TextResult | None = None
    spoken: Spoken | None = None
    audio_result: AudioResult | None = None
    talker_opened: bool = False
    aborted: bool = False

    @property
    def wave(self) -> np.ndarray:
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, np.float32)


class Sink:
    """An Emit that sorts by task."""

    def __init__(self) -> None:
        self.chunks: list[tuple[Any, Any]] = []
        self.results: list[tuple[Any, Any]] = []
        self.failures: list[tuple[Any, Exception]] = []
        self.collects = False

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self.chunks.append((task, data))

    def result(self, task: Any, data: Any = None) -> None:
        self.results.append((task, data))

    def failure(self, task: Any, error: Exception) -> None:
        if not self.collects:
            raise error
        self.failures.append((task, error))


class Bench:
    """All stages of one checkpoint, loaded once. Nothing is kept from one answer for another, but where asked."""

    def __init__(
        self, folder: str, place: Mapping[str, str] | None = None, talker: Mapping[str, Any] | None = None, **thinker: Any
    ) -> None:
        """``place``: device and dtype of what has weights (code2wav has a dtype of its own)."""
        where = dict(place or {})
        self.preprocessing = Preprocessing(folder)
        self.audio_encoder = AudioEncoder(folder, **where)
        self.image_encoder = ImageEncoder(folder, **where)
        self.aggregate = Aggregate(folder)
        self.thinker = Thinker(folder, **{"kept_rows": 0, **where, **thinker})
        self.decode = Decode(folder)
        self.talker = Talker(folder, **{"kept_rows": 0, **where, **(talker or {})})
        self.code2wav = Code2Wav(folder, device=where.get("device", "cpu"))

    def thinker_input(self, body: GenerateRequest) -> Any:
        request = _request(body)
        prepared = asyncio.run(self.preprocessing.prepare(body))
        heard = seen = None
        if prepared.speech:
            heard = _one_shot(self.audio_encoder, request, speech_only(prepared))
        if prepared.images or prepared.videos:
            seen = _one_shot(self.image_encoder, request, pictures_only(prepared))
        if heard is None and seen is None:
            return _one_shot(self.aggregate, request, without_media(prepared))
        return _one_shot(self.aggregate, request, (without_media(prepared), heard or Heard(), seen or Seen()))

    def run(
        self, bodies: Sequence[GenerateRequest], abort: Mapping[str, int] | None = None, late: Mapping[str, int] | None = None
    ) -> dict[str, Made]:
        """Everything to its end. ``abort``: id -> after so many frames; ``late``: id -> joins after so many rounds."""
        answers = [_Answer(self, body, (late or {}).get(body.id, 0)) for body in bodies]
        rounds = 0
        while any(not a.over for a in answers):
            for answer in answers:
                answer.arrive(rounds)
            self._round(answers)
            for answer in answers:
                if (abort or {}).get(answer.body.id, 1 << 30) <= len(answer.made.codes):
                    answer.abort()
            rounds += 1
            assert rounds < 10_000, "the stages stand still"
        return {a.body.id: a.made for a in answers}

    def _round(self, answers: list[_Answer]) -> None:
        for key in ("thinker", "decode", "talker", "code2wav"):
            stage = getattr(self, key)
            tasks = {id(a.tasks[key]): a for a in answers if key in a.tasks}
            for answer in tasks.values():
                answer.pour(key)
            ready = [a.tasks[key] for a in tasks.values() if isinstance(stage.poll(a.tasks[key], 0.0), Ready)]
            if not ready:
                continue
            sink = Sink()
            stage.step(ready, sink)
            for task, data in sink.chunks:
                tasks[id(task)].said(key, data)
            for task, data in sink.results:
                tasks[id(task)].ended(key, data)


class _Answer:
    def __init__(self, bench: Bench, body: GenerateRequest, joins: int) -> None:
        self.bench, self.body, self.joins = bench, body, joins
        self.request = _request(body)
        self.made = Made()
        self.tasks: dict[str, Any] = {}
        self.waiting: dict[str, list[Chunk]] = {"decode": [], "talker": [], "code2wav": []}
        self.left = {"decode", "code2wav"} if "audio" in body.terminals else {"decode"}
        self.begun = False

    @property
    def over(self) -> bool:
        return not self.left

    def arrive(self, rounds: int) -> None:
        if not self.begun and rounds >= self.joins:
            self.begun = True
            self.tasks["thinker"] = self.bench.thinker.open(self.request, self.bench.thinker_input(self.body))
            self.tasks["decode"] = self.bench.decode.open(self.request, None)

    def pour(self, key: str) -> None:
        """Feed while the stage's poll is hungry."""
        stage = getattr(self.bench, key)
        while self.waiting.get(key) and stage.poll(self.tasks[key], 0.0).hungry:
            stage.feed(self.tasks[key], self.waiting[key].pop(0))

    def said(self, key: str, data: Any) -> None:
        made = self.made
        if key == "thinker":
            if isinstance(data, Said):
                made.tokens.append(data.token)
                made.order.append("token")
            else:
                made.finished = data
            self._send("decode", key, without_prompt(data))
            if "audio" in self.body.terminals:
                if not made.talker_opened:
                    made.talker_opened = True
                    self.tasks["talker"] = self.bench.talker.open(self.request, None)
                self._send("talker", key, data)
        elif key == "talker":
            assert isinstance(data, Frame)
            made.codes.append(list(data.codes))
            made.order.append("frame")
            if "code2wav" not in self.tasks:
                self.tasks["code2wav"] = self.bench.code2wav.open(self.request, None)
            self._send("code2wav", key, data)
        elif key == "decode":
            assert isinstance(data, TextDelta)
            made.text += data.text
        else:
            assert isinstance(data, AudioDelta)
            made.pieces.append(data.pcm)
            made.marks += data.marks
            made.order.append("audio")

    def ended(self, key: str, data: Any) -> None:
        made = self.made
        getattr(self.bench, key).close(self.tasks.pop(key), "finished")
        self.left.discard(key)
        if key == "thinker":
            self._send("decode", key, None, last=True)
            self._send("talker", key, None, last=True)
        elif key == "talker":
            made.spoken = data
            if "code2wav" in self.tasks:
                self._send("code2wav", key, None, last=True)
            else:
                self.left.discard("code2wav")
        elif key == "decode":
            made.text_result = data
        else:
            made.audio_result = data

    def abort(self) -> None:
        for key, task in self.tasks.items():
            getattr(self.bench, key).close(task, "aborted")
        self.tasks = {}
        self.left = set()
        self.made.aborted = True

    def _send(self, target: str, source: str, data: Any, last: bool = False) -> None:
        self.waiting[target].append(Chunk(source, 0, data, last))


def _request(body: GenerateRequest) -> Request:
    return Request(id=body.id, terminals=body.terminals, body=body, conversation=body.conversation)


def _one_shot(stage: Any, request: Request, inputs: Any) -> Any:
    """Step a stage to its Result."""
    task, sink = stage.open(request, inputs), Sink()
    while not sink.results:
        stage.step([task], sink)
    stage.close(task, "finished")
    return sink.results[0][1]
