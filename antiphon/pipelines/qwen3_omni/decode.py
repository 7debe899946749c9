"""Decode: the Thinker's tokens to text."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.pipelines.outputs import CallDelta, TextDelta, TextResult, Usage
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.qwen3_omni.payloads import Finished
from antiphon.pipelines.stage import READY, WAIT, Chunk, Emit, Ready, Request, Stage, Wait


class Task:
    def __init__(self, text: Detokenizer) -> None:
        self.text = text
        self.tokens: list[int] = []
        self.calls: list[CallDelta] = []
        self.uncounted = 0
        self.finished: Finished | None = None
        self.over = False


class Decode(Stage[Task]):
    """``folder``: the checkpoint, for its tokenizer."""

    def __init__(self, folder: str) -> None:
        self.tokenizer = read_tokenizer(folder)

    def open(self, request: Request, inputs: object) -> Task:
        return Task(Detokenizer(self.tokenizer))

    def feed(self, task: Task, chunk: Chunk) -> None:
        if chunk.last:
            task.over = True
        elif isinstance(chunk.data, Finished):
            task.finished = chunk.data
        elif isinstance(chunk.data, CallDelta):
            task.calls.append(chunk.data)  # no text follows a call
        else:
            task.tokens.append(chunk.data.token)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        return READY if task.tokens or task.calls or task.over else WAIT

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        for task in batch:
            text = "".join(map(task.text.add, task.tokens))
            task.uncounted += len(task.tokens)
            task.tokens = []
            end = task.finished if task.over else None
            if end is not None:
                if end.token >= 0:
                    text += task.text.add(end.token)
                    task.uncounted += 1
                text += task.text.flush() + end.shown
            if text:
                emit.chunk(task, TextDelta(text, task.uncounted))
                task.uncounted = 0
            for piece in task.calls:
                emit.chunk(task, piece)
            task.calls = []
            if task.over:
                emit.result(task, _result(end))


def _result(end: Finished | None) -> TextResult:
    if end is None:
        return TextResult()
    usage = Usage(
        prompt_tokens=end.prompt_tokens,
        cached_tokens=end.cached_tokens,
        completion_tokens=end.completion_tokens,
        prompt_audio_tokens=end.audio_tokens,
        prompt_image_tokens=end.image_tokens,
    )
    return TextResult(end.reason, usage)
