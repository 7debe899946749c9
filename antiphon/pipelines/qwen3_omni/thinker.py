"""The Thinker: prefill in slices, then one token a step for every open answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from antiphon.pipelines.engines.torch.decoder import RowDecoder, kv_bytes
from antiphon.pipelines.engines.torch.paged import PAGE, Row
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.sampling import Sampler, choose
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.qwen3_omni.params import CONTEXT_TOKENS, thinker_params
from antiphon.pipelines.qwen3_omni.payloads import Finished, Prompt, Said, ThinkerInput
from antiphon.pipelines.qwen3_omni.stops import StopScan
from antiphon.pipelines.stage import Emit, Fence, Ready, Reason, Request, Stage, Wait


class Task:
    """One answer. ``row`` exists from the first slice of the prefill to the end."""

    def __init__(self, prompt: ThinkerInput, limit: int, sampler: Sampler, ends: frozenset[int], stops: StopScan) -> None:
        self.prompt = prompt
        self.length = len(prompt.ids)
        self.limit = limit
        self.sampler = sampler
        self.ends = ends
        self.stops = stops
        self.speaks = False
        self.row: Row | None = None
        self.embeds: torch.Tensor | None = None
        self.places: dict[str, torch.Tensor] = {}
        self.states: list[torch.Tensor] = []
        self.prefilled = 0
        self.last = -1
        self.made = 0
        self.told_prompt = False

    @property
    def in_prefill(self) -> bool:
        return self.prefilled < self.length


class Thinker(Stage[Task]):
    """``folder``: the checkpoint. ``kv_tokens``: tokens of all open answers together; ``context``: of one, prompt and all.

    ``prefill_slice``: tokens of a prompt in one step, so that a long one does not hold up the answers being spoken.
    """

    def __init__(
        self,
        folder: str,
        *,
        device: str = "cpu",
        dtype: str = "",
        context: int = CONTEXT_TOKENS,
        kv_tokens: int = 65536,
        prefill_slice: int = 512,
    ) -> None:
        self.place = Place.of(device, dtype)
        self.config = model.read_config(folder)
        text = self.config.thinker_config.text_config
        self.context = min(context, text.max_position_embeddings, kv_tokens)
        net = model.load("thinker", self.config, folder, self.place, kv_bytes(text, kv_tokens, self.place.dtype))
        self.lm_head, self.decoder = net.lm_head, RowDecoder(net.model, kv_tokens, self.place)
        self.embed = net.model.embed_tokens
        self.slice = prefill_slice
        self.tokenizer = read_tokenizer(folder)
        generation = model.read_generation(folder)
        self.defaults = generation if generation.get("do_sample") else {}
        eos = generation.get("eos_token_id") or ()
        self.eos = frozenset((self.config.im_end_token_id, *([eos] if isinstance(eos, int) else eos)))
        talker = self.config.talker_config
        self.accepted = talker.accept_hidden_layer if talker is not None else 0

    def warm_up(self) -> None:
        """One token from the shortest prompt."""
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
                f"the prompt is {len(inputs.ids)} tokens long; this server's context is {self.context}",
                code="context_length_exceeded",
                param="messages",
            )
        stops = StopScan(params.stops, Detokenizer(self.tokenizer) if params.stops else None)
        sampler = Sampler(params.sampling, self.lm_head.out_features, self.place.device)
        if params.sampling.repetition_penalty != 1.0:
            sampler.saw(inputs.ids.tolist())
        task = Task(inputs, min(params.max_tokens, room), sampler, self.eos | params.stop_ids, stops)
        task.speaks = "audio" in request.terminals
        return task

    def poll(self, task: Task, now: float) -> Ready | Wait:
        if task.row is None and not self.decoder.cache.can_hold(task.length + task.limit):
            return Wait(hungry=False)
        return Ready(cost=min(self.slice, task.length - task.prefilled) if task.in_prefill else 1)

    @torch.inference_mode()
    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        decoding = [t for t in batch if not t.in_prefill]
        if decoding:
            self._next(decoding, self._decode(decoding), emit)
        for task in batch:
            if task not in decoding and (last := self._prefill(task)) is not None:
                self._next([task], last, emit)

    def close(self, task: Task, reason: Reason) -> Fence | None:
        if task.row is not None:
            self.decoder.cache.close(task.row)
        return self.place.fence()

    def _decode(self, tasks: list[Task]) -> torch.Tensor:
        """One token through every row; the last hidden states [rows, hidden]."""
        ids = torch.tensor([[t.last] for t in tasks], device=self.place.device)
        at = torch.tensor([[t.length + t.made - 1 + t.prompt.delta] for t in tasks], dtype=torch.float32)
        rows = [t.row for t in tasks if t.row is not None]
        output = self.decoder.forward(rows, self.embed(ids), at.expand(3, -1, -1))
        hidden: torch.Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _prefill(self, task: Task) -> torch.Tensor | None:
        """The next slice of one prompt; the last hidden state [1, hidden] once it is through."""
        if task.embeds is None:
            if not self.decoder.cache.can_hold(task.length + task.limit):
                return None  # an earlier task of this very batch took the room
            task.row = self.decoder.cache.open(task.length + task.limit)
            self._embed(task)
        assert task.row is not None and task.embeds is not None
        start, end = task.prefilled, min(task.prefilled + self.slice, task.length)
        extra: dict[str, Any] = {}
        visual = task.places.get("visual")
        if visual is not None and visual[start:end].any():
            before, inside = int(visual[:start].sum()), int(visual[start:end].sum())
            extra["visual_pos_masks"] = visual[None, start:end]
            extra["deepstack_visual_embeds"] = [
                model.as_tensor(level, self.place)[before : before + inside] for level in task.prompt.deepstack
            ]
        wants_states = task.speaks and "media" in task.places
        if wants_states:
            extra["output_hidden_states"] = [self.accepted]
        positions = torch.from_numpy(task.prompt.positions)[:, None, start:end]
        output = self.decoder.forward([task.row], task.embeds[:, start:end], positions, **extra)
        if wants_states:
            state = next(s for s in output.hidden_states if s is not None)
            task.states.append(state[0, task.places["media"][start:end]])
        task.prefilled = end
        if task.in_prefill:
            return None
        task.embeds = None
        hidden: torch.Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _embed(self, task: Task) -> None:
        """The prompt's rows of E: embeddings, with the encoders' features at media places."""
        prompt, thinker = task.prompt, self.config.thinker_config
        ids = torch.from_numpy(prompt.ids).to(self.place.device)
        embeds = self.embed(ids)
        audio = ids == thinker.audio_token_id
        visual = (ids == thinker.image_token_id) | (ids == thinker.video_token_id)
        for places, features in ((audio, prompt.audio), (visual, prompt.visual)):
            if features is not None:
                embeds[places] = model.as_tensor(features, self.place)
        if prompt.visual is not None:
            task.places["visual"] = visual
        if prompt.audio is not None or prompt.visual is not None:
            task.places["media"] = audio | visual
        task.embeds = embeds[None]

    def _next(self, tasks: list[Task], hidden: torch.Tensor, emit: Emit) -> None:
        """Choose each row's next token and say what follows from it."""
        for task, token in zip(tasks, choose(self.lm_head(hidden), [t.sampler for t in tasks]), strict=True):
            task.made += 1
            task.last = token
            if token in task.ends:
                self._say(task, task.stops.flush(), emit)
                self._finish(task, emit, Finished("stop"))
                continue
            final = task.made == task.limit
            safe = task.stops.push(token)
            if task.stops.hit is not None:
                self._say(task, safe, emit)
                self._finish(task, emit, Finished("stop", shown=task.stops.hit))
            elif final:
                said = [*safe, *task.stops.flush()]
                self._say(task, said[:-1], emit)
                self._finish(task, emit, Finished("length", token=token))
            else:
                self._say(task, safe, emit)

    def _say(self, task: Task, tokens: Sequence[int], emit: Emit) -> None:
        for token in tokens:
            prompt = None
            if task.speaks and not task.told_prompt:
                media = torch.cat(task.states).float().cpu().numpy() if task.states else None
                prompt = Prompt(task.prompt.ids, task.prompt.layout, media)
                task.told_prompt, task.states = True, []
            emit.chunk(task, Said(token, prompt))

    def _finish(self, task: Task, emit: Emit, end: Finished) -> None:
        ids, thinker = task.prompt.ids, self.config.thinker_config
        emit.chunk(
            task,
            Finished(
                end.reason,
                prompt_tokens=task.length,
                completion_tokens=task.made,
                audio_tokens=int(np.count_nonzero(ids == thinker.audio_token_id)),
                image_tokens=int(np.isin(ids, (thinker.image_token_id, thinker.video_token_id)).sum()),
                token=end.token,
                shown=end.shown,
            ),
        )
        emit.result(task)
