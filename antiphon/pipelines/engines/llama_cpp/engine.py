"""One llama.cpp context that serves many conversations: prefix reuse by copy, batched steps, prefill in slices.

An answer is the same alone and beside others. For that flash attention is on: its sum passes over the cells one after the
other and skips those of other sequences, so neither batch nor neighbours change a bit (without it 9 of 24 greedy answers
changed). And for that no cell is freed while anybody is being answered: llama.cpp fills the lowest hole first, so a
sequence that went on in a hole below its beginning would be summed in another order. Under pressure cells are freed all
the same; then a near tie may fall the other way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cyllama.llama.llama_cpp as library

from antiphon.pipelines.engines.llama_cpp.cells import Cells, Slot, common_prefix
from antiphon.pipelines.engines.llama_cpp.sampling import SamplerSpec, build
from antiphon.pipelines.engines.llama_cpp.vocabulary import Vocabulary
from antiphon.pipelines.errors import StageFailed, WeightError

log = logging.getLogger("antiphon.llama_cpp")

MAX_STEP = 128
"""Tokens in one step at most: one micro-batch, so a step is never split behind our back. llama.cpp reserves a row of logits
for each: 600 kB with a vocabulary of 152,000."""
_FLASH_ATTENTION = 1
_MAX_IDS = 256  # LLAMA_MAX_SEQ


@dataclass(eq=False)
class Run:
    """One request in the engine. ``todo``: tokens still to be decoded; ``row``: where its next logits lie, if they do."""

    slot: Slot
    prompt: list[int]
    todo: list[int]
    cached: int
    row: int | None = None
    ended: bool = False


class Engine:
    """``context``: tokens of one conversation at most; ``cells``: tokens of all together; ``sequences``: kept in peace.

    Not thread-safe: one lane owns it. Raises WeightError when the file is no model.
    """

    def __init__(self, path: str | Path, *, context: int, cells: int, sequences: int, threads: int = 1) -> None:
        if not Path(path).is_file():
            raise WeightError(f"no model file at {path}")
        library.disable_logging()
        library.ggml_backend_load_all()
        options = library.LlamaModelParams()
        options.n_gpu_layers = 0
        try:
            self._model = library.LlamaModel(str(path), options)
        except (ValueError, RuntimeError, OSError) as error:
            raise WeightError(f"{Path(path).name} is not a model that llama.cpp can load: {error}") from error
        params = library.LlamaContextParams()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = MAX_STEP
        params.n_threads = params.n_threads_batch = threads
        ids = min(_MAX_IDS, 2 * sequences + 16)  # the spare ones hold what is not freed yet
        params.n_seq_max = ids
        params.kv_unified = True
        params.flash_attn_type = _FLASH_ATTENTION
        self._context = library.LlamaContext(self._model, params)
        self._batch = library.LlamaBatch(n_tokens=MAX_STEP, embd=0, n_seq_max=1)
        self._raw_vocabulary = self._model.get_vocab()
        self.vocabulary = Vocabulary(self._raw_vocabulary)
        self.trained_context: int = self._model.n_ctx_train
        self.context: int = min(context, cells, self.trained_context)
        self.cells = Cells(cells, ids)
        self._kept = sequences
        self._running = 0
        self.name: str = self._model.meta_val_str("general.name") or Path(path).stem

    @property
    def template(self) -> str:
        """The model's own chat template; "" when it has none."""
        return self._model.get_default_chat_template() or ""

    def apply_template(self, messages: Sequence[tuple[str, str]], open_answer: bool) -> str:
        """(role, text) pairs rendered by llama.cpp's own list of templates; raises StageFailed for one it does not know."""
        chat = [library.LlamaChatMessage(role=role, content=text) for role, text in messages]
        try:
            return str(self._model.chat_apply_template(self.template, chat, open_answer))
        except (ValueError, RuntimeError) as error:
            raise StageFailed("thinker", "the model's chat template is not one that llama.cpp knows") from error

    # -- runs
    def begin(self, prompt: Sequence[int], conversation: str = "") -> Run:
        """Find the longest cached prefix and leave only the rest to do (at least one token).

        The prompt must be shorter than ``context``. Raises StageFailed when every sequence is busy.
        """
        if not 0 < len(prompt) < self.context:
            raise StageFailed("thinker", f"a prompt of {len(prompt)} tokens in a context of {self.context}")
        best, shared = self.cells.longest(prompt)
        shared = min(shared, len(prompt) - 1)
        own = [s for s in self.cells.of(conversation) if not s.busy]
        if best is not None and best in own:
            slot = best
            self._truncate(slot, shared)
            shared = len(slot.tokens)
        else:
            taken = self._new_slot(keep=best)
            if taken is None:
                raise StageFailed("thinker", "every conversation slot is busy", code="server_busy", retryable=True)
            slot = taken
            if slot is best:
                self._truncate(slot, shared)
                shared = len(slot.tokens)
            elif best is not None and shared:
                self._context.memory_seq_cp(best.seq, slot.seq, 0, shared)
                self.cells.copy(best, slot, shared)
            for old in own:
                if old in self.cells.slots and old is not slot:
                    self._drop(old)
        slot.busy, slot.owner = True, conversation
        self._running += 1
        self.cells.touch(slot)
        return Run(slot, list(prompt), list(prompt[shared:]), shared)

    def room(self, run: Run) -> int:
        """Tokens that still fit into the conversation's context."""
        return self.context - len(run.slot.tokens) - len(run.todo)

    def sampler(self, spec: SamplerSpec) -> Any:
        return build(library, self._raw_vocabulary, spec)

    def sample(self, run: Run, sampler: Any) -> int:
        """The next token of a run that ``decode`` returned; may be asked again with another sampler."""
        assert run.row is not None, "sampled before its logits were there"
        return int(sampler.sample(self._context, run.row))

    def push(self, run: Run, tokens: Sequence[int]) -> None:
        """To be decoded next."""
        run.todo.extend(tokens)

    def rewind(self, run: Run, prompt: Sequence[int]) -> None:
        """Go on from another text that begins like this one (at least its last token is decoded again)."""
        shared = min(common_prefix(run.slot.tokens, prompt), len(prompt) - 1)
        self._truncate(run.slot, shared)
        run.todo = list(prompt[len(run.slot.tokens) :])
        run.row = None

    def decode(self, runs: Sequence[Run], prefill: int) -> list[Run]:
        """One step: a token for each run that has one to do, and up to ``prefill`` tokens of longer ones, in order.

        Returns those whose next token can be sampled now. Raises StageFailed when the cache cannot hold a single token more.
        """
        plan = self._plan(runs, prefill)
        if not plan:
            raise StageFailed("thinker", "the context memory is full", code="server_busy", retryable=True)
        self._batch.reset()
        ready: list[Run] = []
        rows = 0
        for run, count in plan:
            run.row = None
            position = len(run.slot.tokens)
            whole = count == len(run.todo)
            for i, token in enumerate(run.todo[:count]):
                self._batch.add(token, position + i, [run.slot.seq], whole and i == count - 1)
            rows += count
            if whole:
                run.row = rows - 1
                ready.append(run)
        try:
            self._context.decode(self._batch)
        except (ValueError, RuntimeError) as error:  # what llama_decode refuses; the library has rolled back or not: we do
            for run, _ in plan:
                run.row = None
                self._context.memory_seq_rm(run.slot.seq, len(run.slot.tokens), -1)
            raise StageFailed("thinker", "llama.cpp could not run this step", retryable=True) from error
        for run, count in plan:
            self.cells.append(run.slot, run.todo[:count])
            del run.todo[:count]
            self.cells.touch(run.slot)
        return ready

    def end(self, run: Run, *, keep: bool = True) -> None:
        """The run is over; its sequence stays as a cache unless ``keep`` is false. May be called again."""
        if run.ended:
            return
        run.row, run.ended = None, True
        run.slot.busy = False
        self._running -= 1
        if not keep or not run.slot.tokens:
            self._drop(run.slot)
        else:
            for old in self.cells.of(run.slot.owner):
                if old is not run.slot and not old.busy:
                    self._drop(old)
        if not self._running:
            self._tidy()

    def forget(self, conversation: str) -> None:
        for slot in self.cells.of(conversation):
            if not slot.busy:
                self._drop(slot)

    def pin(self, prompt: Sequence[int]) -> None:
        """Decode this prefix once and keep it for all: new conversations copy it."""
        run = self.begin([*prompt, prompt[-1]])
        run.todo = run.todo[:-1]
        while run.todo:
            self.decode([run], MAX_STEP)
        run.slot.pinned = True
        self.end(run)

    def close(self) -> None:
        self._batch.close()
        self._context.close()
        self._model.close()

    # -- the cache
    def _plan(self, runs: Sequence[Run], prefill: int) -> list[tuple[Run, int]]:
        plan: list[tuple[Run, int]] = []
        total = 0
        singles = sum(1 for run in runs if len(run.todo) == 1)
        left = max(1, min(prefill, MAX_STEP - singles))
        for run in runs:
            count = len(run.todo)
            if count > 1:
                count = min(count, left)
            count = min(count, MAX_STEP - total, self._make_room(total + count) - total)
            if count <= 0:
                continue
            if len(run.todo) > 1:
                left -= count
            total += count
            plan.append((run, count))
        return plan

    def _make_room(self, wanted: int) -> int:
        """Sweep, then evict cold sequences until ``wanted`` cells are free; returns how many are."""
        if self.cells.free < wanted:
            self._sweep()
        while self.cells.free < wanted:
            cold = self.cells.coldest()
            if cold is None:
                break
            self._drop(cold)
            self._sweep()
        return self.cells.free

    def _new_slot(self, keep: Slot | None) -> Slot | None:
        """An empty sequence; the coldest one makes way. ``keep`` is taken itself when it is the last choice."""
        slot = self.cells.take()
        if slot is None and self.cells.ghosts:
            self._sweep()
            slot = self.cells.take()
        if slot is None:
            idle = [s for s in self.cells.slots if not s.busy and not s.pinned]
            others = [s for s in idle if s is not keep]
            if others:
                self._drop(min(others, key=lambda s: s.used))
                self._sweep()
                return self.cells.take()
            if keep is not None and keep in idle:
                return keep
        return slot

    def _truncate(self, slot: Slot, length: int) -> None:
        """Keep the first ``length`` tokens. While others run, the rest becomes a ghost under the old id."""
        if length == len(slot.tokens):
            return
        if self._running > slot.busy and length and (fresh := self.cells.take()) is not None:
            self._context.memory_seq_cp(slot.seq, fresh.seq, 0, length)
            self.cells.copy(slot, fresh, length)
            fresh.seq, slot.seq = slot.seq, fresh.seq
            fresh.tokens, slot.tokens = slot.tokens, fresh.tokens
            fresh.cells, slot.cells = slot.cells, fresh.cells
            self.cells.retire(fresh)
        elif length and self._context.memory_seq_rm(slot.seq, length, -1):
            self.cells.truncate(slot, length)
        else:
            self._context.memory_seq_rm(slot.seq, -1, -1)  # all of it: always allowed
            self.cells.truncate(slot, 0)

    def _drop(self, slot: Slot) -> None:
        self.cells.retire(slot)
        if not self._running:
            self._sweep()

    def _tidy(self) -> None:
        """Nobody is being answered: make the room that the next busy spell will want."""
        while len(self.cells.slots) > self._kept or self.cells.free < self.cells.size // 2:
            cold = self.cells.coldest()
            if cold is None:
                break
            self.cells.retire(cold)
        self._sweep()

    def _sweep(self) -> None:
        """Remove the ghosts."""
        for ghost in list(self.cells.ghosts):
            self._context.memory_seq_rm(ghost.seq, -1, -1)
            self.cells.release(ghost)
