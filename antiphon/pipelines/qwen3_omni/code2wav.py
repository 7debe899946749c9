"""Code2Wav: frames of codes to 24 kHz audio, a small first chunk, then larger ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.stage import TorchStage
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, AudioResult
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.qwen3_omni.marks import SpeechMarks
from antiphon.pipelines.qwen3_omni.params import CHUNK_FRAMES, FIRST_CHUNK_FRAMES, chunking
from antiphon.pipelines.qwen3_omni.payloads import Frame
from antiphon.pipelines.qwen3_omni.vocoder import Vocoder, Voice
from antiphon.pipelines.stage import Chunk, Emit, Fence, Progress, Ready, Reason, Request, Wait


class Task:
    """One answer's audio. ``frames``: codes not decoded yet; ``want``: so many make the next chunk, within ``window``."""

    def __init__(self, first: int, then: int, text: Detokenizer) -> None:
        self.want = first
        self.window = math.inf
        self.then = then
        self.frames: list[tuple[int, ...]] = []
        self.over = False
        self.voice = Voice()
        self.text = text
        self.marks = SpeechMarks()
        self.seen = 0
        self.told_end = False

    @property
    def next(self) -> int:
        return int(min(self.want, self.window))


class Code2Wav(TorchStage[Task]):
    """``folder``: the checkpoint. ``chunk_frames`` of 80 ms in a chunk; the first has ``first_chunk_frames``."""

    def __init__(
        self,
        folder: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        chunk_frames: int = CHUNK_FRAMES,
        first_chunk_frames: int = FIRST_CHUNK_FRAMES,
    ) -> None:
        # float32 wherever it runs: the snake activations of the last blocks are audible in half precision.
        self.place = Place.of(device, dtype)
        self.config = model.read_config(folder)
        model.check_codec(self.config)
        self.vocoder = Vocoder(model.load("code2wav", self.config, folder, self.place), self.place)
        self.groups = self.config.code2wav_config.num_quantizers
        self.chunk_frames, self.first_chunk_frames = chunk_frames, first_chunk_frames
        self.tokenizer = read_tokenizer(folder)

    def warm_up(self) -> None:
        self.vocoder.push([Voice()], [[(0,) * self.groups] * self.first_chunk_frames])

    def open(self, request: Request, inputs: object) -> Task:
        sizes = chunking(request.body, self.first_chunk_frames, self.chunk_frames)
        return Task(sizes.first, sizes.then, Detokenizer(self.tokenizer))

    def feed(self, task: Task, chunk: Chunk) -> None:
        if chunk.last:
            task.over = True
            return
        frame: Frame = chunk.data
        task.frames.append(frame.codes)
        if frame.token >= 0:
            task.marks.hand_over(task.text.add(frame.token), task.seen * self.vocoder.upsample)
        task.seen += 1

    def tell(self, task: Task, progress: Progress) -> None:
        """The talker makes no more ahead of the listener than his window: a chunk that is longer would never be whole."""
        frame_ms = self.vocoder.upsample * 1000 / AUDIO_RATE
        task.window = math.inf if math.isinf(progress.window_ms) else max(1, progress.window_ms // frame_ms)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        if len(task.frames) >= task.next or task.over:
            return Ready(cost=max(1, min(len(task.frames), task.next)))
        return Wait()

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        sounding = [t for t in batch if t.frames]
        codes = [t.frames[: t.next] for t in sounding]
        made = self.vocoder.push([t.voice for t in sounding], codes) if sounding else []
        for task, taken, samples in zip(sounding, codes, made, strict=True):
            del task.frames[: len(taken)]
            task.want = task.then
            sent = task.voice.samples
            last = task.over and not task.frames
            marks = task.marks.end(sent) if last else task.marks.until(sent)
            task.told_end = last
            emit.chunk(task, AudioDelta(samples, marks, exact=False), span_ms=len(samples) * 1000 / AUDIO_RATE)
        for task in batch:
            if task.over and not task.frames:
                if not task.told_end and (marks := task.marks.end(task.voice.samples)):
                    # The codes ended with a whole chunk: its samples left before that was known.
                    emit.chunk(task, AudioDelta(np.zeros(0, np.float32), marks, exact=False))
                emit.result(task, AudioResult(task.voice.samples))

    def close(self, task: Task, reason: Reason) -> Fence | None:
        return self.place.fence()
