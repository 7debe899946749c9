"""The segmenter: the Thinker's text as it grows -> clauses to be spoken, each with its place in that text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.clauses import LONGEST, ClauseScanner, Cut
from antiphon.pipelines.local.speakable import foreign_script
from antiphon.pipelines.local.spoken import SpokenClause
from antiphon.pipelines.local.voices import VOICES, check_voice
from antiphon.pipelines.outputs import TextDelta, TextResult
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import WAIT, Chunk, Emit, Inputs, Ready, Request, Stage, Wait

_GAP_LINE, _GAP_SENTENCE, _GAP_PAUSE, _GAP_NONE = 450.0, 330.0, 140.0, 60.0
"""Silence in ms after a line, a sentence, a comma, and where a long clause was cut without a mark."""


@dataclass(slots=True)
class _Task:
    scanner: ClauseScanner
    asked_to_speak: bool
    fed_at: float = 0.0
    tried: bool = False  # nothing could be flushed of what has been fed so far
    closing: bool = False  # a tool call begins: the text before it is a whole


class Segmenter(Stage[_Task]):
    """Emits SpokenClause chunks; an answer with nothing to say (emoji, a lone tool call) emits none.

    The text is the request's own (task "speech") or the TextDelta chunks fed. ``patience_ms``: how long something
    speakable waits for more text when the stream stalls. ``longest``: characters of a clause at normal speed.
    ``any_voice``: a voice elsewhere speaks, with names and languages of its own; nothing is checked here.
    """

    def __init__(
        self,
        patience_ms: float = 450.0,
        longest: int = LONGEST,
        clock: Callable[[], float] = time.monotonic,
        any_voice: bool = False,
    ) -> None:
        self.any_voice = any_voice
        self.patience = patience_ms / 1000
        self.longest = longest
        self.clock = clock

    def open(self, request: Request, inputs: Inputs) -> _Task:
        body: GenerateRequest = request.body
        if not self.any_voice:
            check_voice(body.voice)
        speech = body.task == "speech"
        scanner = ClauseScanner(int(self.longest * min(1.0, body.voice.speed)), eager=not speech)
        if speech:
            scanner.push(body.text)
            scanner.finish()
        return _Task(scanner, asked_to_speak=speech)

    def feed(self, task: _Task, chunk: Chunk) -> None:
        if task.asked_to_speak:
            return
        if chunk.last or isinstance(chunk.data, TextResult):  # the Thinker's own end comes just before the stream's
            task.scanner.finish()
        elif isinstance(chunk.data, TextDelta):
            task.scanner.push(chunk.data.text)
            task.closing = False
        else:
            task.closing = True
        task.fed_at, task.tried = self.clock(), False

    def poll(self, task: _Task, now: float) -> Ready | Wait:
        scanner = task.scanner
        if not scanner.waiting:
            return Ready(hungry=False)
        if scanner.over:
            return Ready(hungry=False)
        if task.tried or not scanner.pending:
            return WAIT
        if task.closing or now >= task.fed_at + self.patience:
            return Ready(hungry=True)
        return Wait(until=task.fed_at + self.patience)

    def step(self, batch: Sequence[_Task], emit: Emit) -> None:
        for task in batch:
            scanner = task.scanner
            if not scanner.waiting:
                cut = scanner.next()
            elif scanner.over:
                emit.result(task)
                continue
            else:
                cut = scanner.flush(whole=task.closing)
                task.tried = cut is None
            if cut is None:
                continue
            if task.asked_to_speak and not self.any_voice and (script := foreign_script(cut.said.text)):
                message = f"the voice {VOICES[0]!r} speaks English; it cannot read {script} script"
                emit.failure(task, Refused(message, code="unsupported_language", param="input"))
            else:
                emit.chunk(task, self._clause(cut))

    @staticmethod
    def _clause(cut: Cut) -> SpokenClause:
        text = cut.said.text
        if cut.line_end:
            gap = _GAP_LINE
        elif text.rstrip("\"'”’)]")[-1:] in ".!?…":
            gap = _GAP_SENTENCE
        else:
            gap = _GAP_PAUSE if cut.paused else _GAP_NONE
        return SpokenClause(text, cut.start, cut.end, cut.said.word_ends, gap)
