"""The Thinker of the CPU voice: a small language model in llama.cpp, all conversations in one batch.

A step is one token for everyone who speaks and a slice of the prompts of those who wait. Its stream is TextDelta and
CallDelta, and as the last chunk the TextResult; its Result is that TextResult again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.pipelines.engines.llama_cpp.engine import Engine, Run
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.local import prompts, thinker_model
from antiphon.pipelines.local.answer import Answer, tool_cache
from antiphon.pipelines.local.prepared import Prepared
from antiphon.pipelines.local.rendering import Renderer
from antiphon.pipelines.outputs import TextResult, Usage
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Emit, Inputs, Progress, Ready, Reason, Request, Stage, Wait
from antiphon.pipelines.threads import granted

SLICE_SPEAKING = 16
SLICE_QUIET = 32
"""Prompt tokens in a step while anybody speaks, and otherwise. Larger slices gain nothing on a CPU, and delay an abort."""
EARLY_TOKENS = 12
_CLAUSE_END = re.compile(r"\w[.,;:!?…][\"')\]]*\s*$")


@dataclass(eq=False)
class Thought:
    """A task. ``prefill``: of a ``prepare`` request, which ends when these prompts lie in the cache."""

    request: Request
    answer: Answer | None = None
    prefill: list[Run] = field(default_factory=list)
    held: bool = False

    @property
    def run(self) -> Run:
        return self.answer.run if self.answer is not None else self.prefill[-1]


class Thinker(Stage[Thought]):
    """``model``: a GGUF file, or "" for the installed default. ``context``: tokens of one conversation at most.

    ``cells``: tokens of all conversations that are kept (12 kB each with the default model). ``max_conversations``:
    sequences, open and cached; a conversation that offers tools has two. Declare ``max_batch`` as large as ``max_open``.
    """

    def __init__(
        self,
        model: str | Path = "",
        context: int = 4096,
        cells: int = 16_384,
        max_conversations: int = 48,
        threads: int | None = None,
    ) -> None:
        self._engine = Engine(
            model or thinker_model.installed(),
            context=context,
            cells=cells,
            sequences=max_conversations + 1,
            threads=threads or granted(),
        )
        self._renderer = Renderer(self._engine)
        self._open: set[Thought] = set()

    @property
    def engine(self) -> Engine:
        return self._engine

    def warm_up(self) -> None:
        """Decode what every spoken conversation begins with, and run a step of each kind."""
        self._engine.pin(self._renderer.tokens(prompts.default_head(), answer=False))

    def open(self, request: Request, inputs: Inputs) -> Thought:
        body: GenerateRequest = inputs.request if isinstance(inputs, Prepared) else inputs
        if body.task != "chat":
            raise Refused(f"the thinker has nothing to do for a {body.task} request", code="unsupported_value")
        spoken = "audio" in (request.terminals or body.terminals)
        thought = Thought(request, held=request.listener == "early")
        if request.kind == "prepare":
            thought.prefill = self._prefill(body, request.conversation, spoken)
        else:
            thought.answer = Answer(self._engine, self._renderer, body, spoken=spoken, conversation=request.conversation)
        self._open.add(thought)
        return thought

    def _prefill(self, body: GenerateRequest, conversation: str, spoken: bool) -> list[Run]:
        """Up to the beginning of the user's turn; with tools offered both prompts, the one with tools first."""
        runs = []
        for tools, cache in ((), conversation), (body.tools, tool_cache(conversation)):
            if tools or cache == conversation:
                script = prompts.script(body, spoken=spoken, tools=tools)
                tokens = self._renderer.fit(script, self._engine.context - 1, answer=False, asking=True)
                runs.append(self._engine.begin(tokens, cache))
        return runs

    def poll(self, task: Thought, now: float) -> Ready | Wait:
        if task.held and task.answer is not None and self._first_clause(task.answer):
            return Wait(hungry=False)
        return Ready(cost=min(len(task.run.todo), SLICE_QUIET) or 1)

    @staticmethod
    def _first_clause(answer: Answer) -> bool:
        return answer.made >= EARLY_TOKENS or _CLAUSE_END.search(answer.text) is not None

    def tell(self, task: Thought, progress: Progress) -> None:
        task.held = progress.listener == "early"

    def step(self, batch: Sequence[Thought], emit: Emit) -> None:
        live = []
        for task in batch:
            if task.answer is not None and task.answer.wanted is None:
                self._finish(task, emit)  # nothing was to be said at all
            else:
                live.append(task)
        if not live:
            return
        speaking = any(t.answer is not None and t.answer.made and not t.held for t in self._open)
        by_run = {id(t.run): t for t in live}
        try:
            ready = self._engine.decode([t.run for t in live], SLICE_SPEAKING if speaking else SLICE_QUIET)
        except StageFailed as error:
            emit.failure(live[-1], error)  # the least urgent gives way; what it held is free for the others
            return
        for run in ready:
            task = by_run[id(run)]
            if task.answer is None:
                self._engine.end(task.prefill.pop())
                if not task.prefill:
                    emit.result(task)
                continue
            try:
                self._advance(task.answer)
            except (Refused, StageFailed) as error:
                emit.failure(task, error)
                continue
            for piece in task.answer.say:
                emit.chunk(task, piece)
            task.answer.say.clear()
            if task.answer.wanted is None:
                self._finish(task, emit)

    def _advance(self, answer: Answer) -> None:
        """Sample until there is something to decode, or the answer is over."""
        while answer.wanted is not None and not answer.run.todo:
            answer.took(self._engine.sample(answer.run, answer.wanted))

    @staticmethod
    def _finish(task: Thought, emit: Emit) -> None:
        answer = task.answer
        assert answer is not None
        usage = Usage(prompt_tokens=answer.prompt, cached_tokens=answer.cached, completion_tokens=answer.made)
        result = TextResult(answer.finish, usage)
        emit.chunk(task, result)
        emit.result(task, result)

    def close(self, task: Thought, reason: Reason) -> None:
        self._open.discard(task)
        for run in [task.answer.run] if task.answer is not None else task.prefill:
            self._engine.end(run, keep=reason != "failed")

    def forget(self, conversation: str) -> None:
        self._engine.forget(conversation)
        self._engine.forget(tool_cache(conversation))

    def shut_down(self) -> None:
        self._engine.close()
