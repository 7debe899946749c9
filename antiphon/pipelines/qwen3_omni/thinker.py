"""The Thinker: prefill in slices, then one token a step for every open answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from antiphon.pipelines.engines.torch.decoder import RowDecoder, kv_bytes
from antiphon.pipelines.engines.torch.guided import Guides
from antiphon.pipelines.engines.torch.paged import PAGE, Row
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.prefixes import KEPT_ROWS, Prefix, Prefixes
from antiphon.pipelines.engines.torch.sampling import Sampler, choose
from antiphon.pipelines.engines.torch.stage import TorchStage
from antiphon.pipelines.errors import PipelineError, Refused
from antiphon.pipelines.outputs import CallDelta
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.answer import Answer, End, Marks, Piece
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.params import CONTEXT_TOKENS, PREFILL_SLICE, generation_defaults, thinker_params
from antiphon.pipelines.qwen3_omni.payloads import Finished, Prompt, Said, ThinkerInput
from antiphon.pipelines.stage import Emit, Fence, Ready, Reason, Request, Wait


class Task:
    """One answer; ``answer`` None: a prompt that is only read ahead. ``row`` exists from the first slice to the end.

    ``begun``: tokens of the prompt that lay in the cache. ``speaks``: a talker follows, which wants the ``states`` of layer
    ``accepted`` at media places.
    """

    def __init__(
        self, request: Request, prompt: ThinkerInput, answer: Answer | None, sampler: Sampler, accepted: int | None
    ) -> None:
        # A request without a conversation may be the next turn of one that only its client knows.
        self.conversation = request.conversation or f"\0{request.id}"
        self.prompt = prompt
        self.length = len(prompt.ids)
        self.answer = answer
        self.sampler = sampler
        self.speaks = "audio" in request.terminals
        # A prompt that is read ahead may be spoken to later.
        self.collects = accepted is not None and (self.speaks or answer is None)
        self.reserve = self.length + (answer.limit if answer is not None else 0)
        self.row: Row | None = None
        self.begun = 0
        self.embeds: torch.Tensor | None = None
        self.visual: torch.Tensor | None = None
        self.media = np.zeros(0, bool)
        self.states: list[torch.Tensor] = []
        self.prefilled = 0
        self.said: list[int] = []
        self.told_prompt = False

    @property
    def in_prefill(self) -> bool:
        return self.prefilled < self.length


class Thinker(TorchStage[Task]):
    """``folder``: the checkpoint. ``kv_tokens``: tokens of all open answers together; ``context``: of one, prompt and all.

    ``prefill_slice``: tokens of a prompt in one step, so that a long one does not hold up the answers being spoken.
    ``kept_rows``: ended answers whose keys and values are kept, within ``kv_tokens``, for prompts that begin alike.
    ``speaks``: the pipeline has a talker, which may want states of this model. (A checkpoint without one has a config of it
    all the same: transformers' defaults.)
    """

    def __init__(
        self,
        folder: str,
        *,
        device: str = "cpu",
        dtype: str = "",
        context: int = CONTEXT_TOKENS,
        kv_tokens: int = 65536,
        prefill_slice: int = PREFILL_SLICE,
        kept_rows: int = KEPT_ROWS,
        speaks: bool = True,
    ) -> None:
        self.place = Place.of(device, dtype)
        self.config = model.read_config(folder)
        thinker = self.config.thinker_config
        self.visual_ids = (thinker.image_token_id, thinker.video_token_id)
        self.audio_id = thinker.audio_token_id
        text = self.config.thinker_config.text_config
        self.context = min(context, text.max_position_embeddings, kv_tokens)
        net = model.load("thinker", self.config, folder, self.place, kv_bytes(text, kv_tokens, self.place.dtype))
        self.lm_head, self.decoder = net.lm_head, RowDecoder(net.model, kv_tokens, self.place)
        self.prefixes = Prefixes(self.decoder.cache, kept_rows)
        self.embed = net.model.embed_tokens
        self.slice = prefill_slice
        self.tokenizer = read_tokenizer(folder)
        self.defaults, ends = generation_defaults(model.read_generation(folder))
        self.eos = frozenset((self.config.im_end_token_id, *ends))
        self.marks = Marks(self.tokenizer)
        self.guides = Guides(self.tokenizer, self.eos, self.lm_head.out_features)
        self.accepted = self.config.talker_config.accept_hidden_layer if speaks else None

    def warm_up(self) -> None:
        """One token from the shortest prompt, and the vocabulary for grammars."""
        self.guides.warm_up()
        row = self.decoder.cache.open(PAGE)
        ids = torch.tensor([[self.config.im_start_token_id]], device=self.place.device)
        with torch.inference_mode():
            self.decoder.forward([row], self.embed(ids), torch.zeros(3, 1, 1))
        self.decoder.cache.close(row)

    def open(self, request: Request, inputs: ThinkerInput) -> Task:
        params = thinker_params(request.body, self.defaults)
        room = self.context - len(inputs.ids)
        if room < 1:
            raise Refused(
                f"this model's maximum context length is {self.context} tokens; the prompt has {len(inputs.ids)}",
                code="context_length_exceeded",
                param="messages",
            )
        sampler = Sampler(params.sampling, self.lm_head.out_features, self.place.device)
        if params.sampling.repetition_penalty != 1.0:
            sampler.saw(inputs.ids.tolist())
        answer = None
        if request.kind == "generate":
            limit, ends = min(params.max_tokens, room), self.eos | params.stop_ids
            answer = Answer(request.body, self.tokenizer, self.marks, self.guides, limit, ends)
        return Task(request, inputs, answer, sampler, self.accepted)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        if task.row is None and not self.prefixes.could_hold(task.reserve):
            return Wait(hungry=False)
        return Ready(cost=min(self.slice, task.length - task.prefilled) if task.in_prefill else 1)

    @torch.inference_mode()
    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        decoding = [t for t in batch if not t.in_prefill]
        if decoding:
            self._next(decoding, self._decode(decoding), emit)
        for task in batch:
            if task in decoding or (last := self._prefill(task)) is None:
                continue
            if task.answer is None:
                emit.result(task)
            else:
                self._next([task], last, emit)

    def close(self, task: Task, reason: Reason) -> Fence | None:
        if task.row is None:
            return self.place.fence()
        if reason != "failed":
            self.prefixes.keep(task.conversation, self._prefix(task, task.row), whole=reason == "finished")
        else:
            self.decoder.cache.close(task.row)
        return self.place.fence()

    def forget(self, conversation: str) -> None:
        self.prefixes.forget(conversation)

    def _prefix(self, task: Task, row: Row) -> Prefix:
        """What the task's row holds: its prompt, and what it has said but for the newest token."""
        prompt, n = task.prompt, row.length
        later = np.arange(task.length, max(n, task.length), dtype=np.float32) + np.float32(prompt.delta)
        positions = np.concatenate([prompt.positions, np.broadcast_to(later, (3, len(later)))], axis=1)
        names = np.concatenate([prompt.names, np.array(task.said, np.int64)])
        media = np.concatenate([task.media, np.zeros(len(task.said), bool)])[:n]
        states = torch.cat(task.states) if task.states else None
        return Prefix(row, names[:n], positions[:, :n], media, states)

    def _decode(self, tasks: list[Task]) -> torch.Tensor:
        """One token through every row; the last hidden states [rows, hidden]."""
        ids = torch.tensor([[t.said[-1]] for t in tasks], device=self.place.device)
        at = torch.tensor([[t.length + len(t.said) - 1 + t.prompt.delta] for t in tasks], dtype=torch.float32)
        rows = [t.row for t in tasks if t.row is not None]
        output = self.decoder.forward(rows, self.embed(ids), at.expand(3, -1, -1))
        hidden: torch.Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _prefill(self, task: Task) -> torch.Tensor | None:
        """The next slice of one prompt; the last hidden state [1, hidden] once it is through."""
        if task.row is None and not self._begin(task):
            return None  # an earlier task of this very batch took the room
        assert task.row is not None and task.embeds is not None
        start, end = task.prefilled, min(task.prefilled + self.slice, task.length)
        extra: dict[str, Any] = {}
        visual = task.visual
        if visual is not None and visual[start:end].any():
            before, inside = int(visual[:start].sum()), int(visual[start:end].sum())
            extra["visual_pos_masks"] = visual[None, start:end]
            extra["deepstack_visual_embeds"] = [
                model.as_tensor(level, self.place)[before : before + inside] for level in task.prompt.deepstack
            ]
        wanted = task.collects and task.media[start:end].any()
        if wanted:
            extra["output_hidden_states"] = [self.accepted]
        positions = torch.from_numpy(task.prompt.positions)[:, None, start:end]
        output = self.decoder.forward([task.row], task.embeds[:, start:end], positions, **extra)
        if wanted:
            state = next(s for s in output.hidden_states if s is not None)
            task.states.append(state[0, torch.from_numpy(task.media[start:end]).to(self.place.device)])
        task.prefilled = end
        if task.in_prefill:
            return None
        task.embeds = None
        hidden: torch.Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _begin(self, task: Task) -> bool:
        """A row for the task, begun with what is cached of its prompt; and the prompt's embeddings. False: no room."""
        prompt = task.prompt
        task.media = np.isin(prompt.ids, (self.audio_id, *self.visual_ids))
        opened = self.prefixes.open(task.reserve, prompt.names, prompt.positions, states=task.collects)
        if opened is None:
            return False
        task.row, prefix = opened
        task.begun = task.prefilled = task.row.length
        known = int(task.media[: task.begun].sum())
        if task.collects and known and prefix is not None and prefix.states is not None:
            task.states.append(prefix.states[:known])
        self._embed(task)
        return True

    def _embed(self, task: Task) -> None:
        """The prompt's rows of E: embeddings, with the encoders' features at media places."""
        prompt = task.prompt
        ids = torch.from_numpy(prompt.ids).to(self.place.device)
        embeds = self.embed(ids)
        audio = ids == self.audio_id
        visual = (ids == self.visual_ids[0]) | (ids == self.visual_ids[1])
        for places, features in ((audio, prompt.audio), (visual, prompt.visual)):
            if features is not None:
                embeds[places] = model.as_tensor(features, self.place)
        if prompt.visual is not None:
            task.visual = visual
        task.embeds = embeds[None]

    def _scores(self, tasks: Sequence[Task], hidden: torch.Tensor) -> torch.Tensor:
        """[tasks, vocabulary] of the last hidden states [tasks, hidden]."""
        scores: torch.Tensor = self.lm_head(hidden)
        return scores

    def _next(self, tasks: list[Task], hidden: torch.Tensor, emit: Emit) -> None:
        """Choose each row's next token and say what it brings."""
        scores = self._scores(tasks, hidden)
        going, allowed = [], []
        for row, task in enumerate(tasks):
            assert task.answer is not None
            try:
                allowed.append(task.answer.allowed(scores.shape[1]))
            except PipelineError as error:  # this answer's own fault: its neighbours go on
                emit.failure(task, error)
            else:
                going.append(row)
        if not going:
            return
        left = [tasks[row] for row in going]
        rows = scores if len(going) == len(tasks) else scores[going]
        for task, token in zip(left, choose(rows, [t.sampler for t in left], allowed=allowed), strict=True):
            assert task.answer is not None
            task.said.append(token)
            try:
                pieces = task.answer.take(token)
            except PipelineError as error:
                emit.failure(task, error)
            else:
                self._tell(task, pieces, emit)

    def _tell(self, task: Task, pieces: Sequence[Piece], emit: Emit) -> None:
        for piece in pieces:
            if isinstance(piece, End):
                emit.chunk(task, self._finished(task, piece))
                emit.result(task)
            elif isinstance(piece, CallDelta):
                emit.chunk(task, piece)
            else:
                emit.chunk(task, Said(piece, self._prompt(task)))

    def _prompt(self, task: Task) -> Prompt | None:
        """What the talker must know, with the first token that is said."""
        if not task.speaks or task.told_prompt:
            return None
        task.told_prompt = True
        media = torch.cat(task.states).float().cpu().numpy() if task.states else None
        return Prompt(task.prompt.ids, task.prompt.layout, media)

    def _finished(self, task: Task, end: End) -> Finished:
        ids = task.prompt.ids
        return Finished(
            end.reason,
            prompt_tokens=task.length,
            cached_tokens=task.begun,
            completion_tokens=len(task.said),
            audio_tokens=int(np.count_nonzero(ids == self.audio_id)),
            image_tokens=int(np.isin(ids, self.visual_ids).sum()),
            token=end.token,
            shown=end.shown,
        )
