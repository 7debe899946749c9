"""The Talker: one frame of sixteen codes a step, as soon as the Thinker has said one token.

Frame s needs the text up to token s and nothing more: a step waits for the next token or for the Thinker's end, never for
the whole answer.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from antiphon.pipelines.engines.torch.decoder import RowDecoder, kv_bytes
from antiphon.pipelines.engines.torch.paged import PAGE, Row
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.prefixes import KEPT_ROWS, Prefix, Prefixes
from antiphon.pipelines.engines.torch.sampling import Sampler, Sampling, choose
from antiphon.pipelines.engines.torch.stage import TorchStage
from antiphon.pipelines.errors import PipelineError, Refused
from antiphon.pipelines.outputs import CallDelta
from antiphon.pipelines.qwen3_omni import model
from antiphon.pipelines.qwen3_omni.code_predictor import CodePredictor, residual_codes
from antiphon.pipelines.qwen3_omni.params import (
    CHUNK_FRAMES,
    FIRST_CHUNK_FRAMES,
    PREFILL_SLICE,
    TALKER_KV_TOKENS,
    Chunking,
    chunking,
    in_order,
    speaker,
    talker_params,
)
from antiphon.pipelines.qwen3_omni.payloads import Finished, Frame, Prompt, Spoken, ThinkerChunk
from antiphon.pipelines.qwen3_omni.talker_input import Opening, TalkerInput
from antiphon.pipelines.stage import Chunk, Emit, Fence, Ready, Reason, Request, Wait

FRAME_MS = 80.0
SPARE_S = 0.25
"""A row with more sound in hand than this waits for rows that wait for their next token: one step for all of them."""
COMPANY_S = 0.1
"""But not for one that has waited so long: its text is slow, or its listener has enough."""
SPECIAL_IDS = 1024
"""The last so many ids of the codec vocabulary are control tokens: never said, but for the end."""


class Task:
    """One answer's speech. ``text``: tokens not spoken yet; ``over``: the Thinker has ended; ``whole``: half of it is none."""

    def __init__(
        self,
        voice: str,
        sampler: Sampler,
        limit: int,
        chunks: Chunking | None = None,
        whole: bool = False,
        conversation: str = "",
    ) -> None:
        self.conversation = conversation
        self.voice = voice
        self.sampler = sampler
        self.limit = limit
        self.chunks = chunks
        self.whole = whole
        self.began = self.stepped = 0.0
        """When it made its first frame, and its last."""
        self.text: deque[int] = deque()
        self.over = False
        self.ended_text = False
        self.prompt: Prompt | None = None
        self.opening: Opening | None = None
        self.kept: Prefix | None = None
        """What stays of it in the cache for the next turn."""
        self.row: Row | None = None
        self.length = 0
        self.delta = 0.0
        self.prefilled = 0
        self.carried: torch.Tensor | None = None
        self.token = -1
        self.frames = 0
        self.chosen = 0

    @property
    def silent(self) -> bool:
        """The Thinker ended without a word."""
        return self.prompt is None and self.row is None and self.over

    @property
    def in_prefill(self) -> bool:
        return self.carried is None

    @property
    def waits_for_text(self) -> bool:
        return not self.in_prefill and not self.text and not self.over

    def runs_dry(self) -> float:
        """When a listener who heard the first frame at once has no more sound. Frames sound in whole chunks."""
        if self.chunks is None or self.frames < self.chunks.first:
            return self.began
        whole = (self.frames - self.chunks.first) // self.chunks.then
        return self.began + (self.chunks.first + whole * self.chunks.then) * FRAME_MS / 1000


class Talker(TorchStage[Task]):
    """``folder``: the checkpoint. ``kv_tokens``: frames and prompt rows of all open answers together; an answer that may
    take the model's own limit of 4096 frames is promised as many, so the default serves sixteen. ``kept_rows``: conversations
    whose user's turns are kept, within ``kv_tokens``, for their next answer."""

    def __init__(
        self,
        folder: str,
        *,
        device: str = "cpu",
        dtype: str = "",
        kv_tokens: int = TALKER_KV_TOKENS,
        prefill_slice: int = PREFILL_SLICE,
        kept_rows: int = KEPT_ROWS,
    ) -> None:
        self.place = Place.of(device, dtype)
        self.config = model.read_config(folder)
        model.check_codec(self.config)
        talker = self.config.talker_config
        text = talker.text_config
        need = kv_bytes(text, kv_tokens, self.place.dtype)
        net = model.load("talker", self.config, folder, self.place, need)
        self.talker, self.decoder = net.talker, RowDecoder(net.talker.model, kv_tokens, self.place)
        self.prefixes = Prefixes(self.decoder.cache, kept_rows)
        self.predictor = CodePredictor(net.talker.code_predictor)
        self.input = TalkerInput(self.config, net, self.place)
        self.slice = prefill_slice
        self.context = min(kv_tokens, text.max_position_embeddings)
        self.end = talker.codec_eos_token_id
        self.voices = in_order(talker.speaker_id)
        self._open: set[Task] = set()
        self.suppressed = torch.zeros(text.vocab_size, dtype=torch.bool, device=self.place.device)
        self.suppressed[-SPECIAL_IDS:] = True
        self.suppressed[self.end] = False

    def warm_up(self) -> None:
        """One frame from the shortest input."""
        row = self.decoder.cache.open(PAGE)
        sampler = Sampler(Sampling(), self.talker.vocab_size, self.place.device)
        with torch.inference_mode():
            output = self.decoder.forward([row], self.input.pad[None, None], torch.zeros(3, 1, 1))
            residual_codes(self.predictor, output.last_hidden_state[:, -1], self.input.codec([0]), [sampler])
        self.decoder.cache.close(row)

    def open(self, request: Request, inputs: object) -> Task:
        params = talker_params(request.body)
        voice = speaker(request.body, self.voices)
        sampler = Sampler(params.sampling, self.talker.vocab_size, self.place.device)
        whole = request.body.task == "speech" and not params.cut
        chunks = chunking(request.body, FIRST_CHUNK_FRAMES, CHUNK_FRAMES)
        task = Task(voice, sampler, params.max_frames, chunks, whole, request.conversation or f"\0{request.id}")
        self._open.add(task)
        return task

    def feed(self, task: Task, chunk: Chunk) -> None:
        data: ThinkerChunk | None = chunk.data
        if chunk.last or data is None or isinstance(data, Finished):
            task.over = True
            return
        if isinstance(data, CallDelta):
            return
        if data.prompt is not None:
            task.prompt = data.prompt
        task.text.append(data.token)

    def poll(self, task: Task, now: float) -> Ready | Wait:
        if not task.in_prefill:
            if task.waits_for_text:
                return Wait()
            spare = task.runs_dry() - SPARE_S
            company = max((other.stepped for other in self._open if other.waits_for_text), default=-math.inf) + COMPANY_S
            waits_until = min(spare, company)
            return Wait(until=waits_until, hungry=False) if now < waits_until else Ready()
        if task.silent:
            return Ready()
        if task.prompt is None and task.row is None:
            return Wait()
        if task.row is None and task.opening is not None and not self.prefixes.could_hold(task.length + task.limit):
            return Wait(hungry=False)
        return Ready(cost=max(1, min(self.slice, task.length - task.prefilled)))

    @torch.inference_mode()
    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        ready: list[tuple[Task, torch.Tensor]] = []
        speaking = [t for t in batch if not t.in_prefill]
        if speaking:
            ready += zip(speaking, self._decode(speaking), strict=True)
        for task in batch:
            if not task.in_prefill:
                continue
            if task.silent:
                emit.result(task, Spoken(0))
                continue
            try:
                hidden = self._prefill(task)
            except PipelineError as error:  # this answer's own fault: its neighbours go on
                emit.failure(task, error)
                continue
            if hidden is not None:
                ready.append((task, hidden))
        if ready:
            self._frames([t for t, _ in ready], torch.stack([h for _, h in ready]), emit)

    def close(self, task: Task, reason: Reason) -> Fence | None:
        self._open.discard(task)
        if task.row is not None and task.kept is not None and reason != "failed":
            self.decoder.cache.cut(task.row, len(task.kept.names))
            self.prefixes.keep(task.conversation, task.kept, whole=True)
        elif task.row is not None:
            self.decoder.cache.close(task.row)
        return self.place.fence()

    def forget(self, conversation: str) -> None:
        self.prefixes.forget(conversation)

    def _text_row(self, task: Task) -> torch.Tensor:
        """The text of the coming frame: the next token, once the end of text, then padding."""
        row: torch.Tensor = self.input.pad
        task.token = -1
        if task.text:
            task.token = task.text.popleft()
            row = self.input.text([task.token])[0]
        elif not task.ended_text:
            task.ended_text = True
            row = self.input.eos
        return row

    def _decode(self, tasks: list[Task]) -> list[torch.Tensor]:
        """One row through every answer; its last hidden states."""
        carried = [t.carried for t in tasks if t.carried is not None]
        text = [self._text_row(t) for t in tasks]
        at = torch.tensor([[t.length + t.frames - 1 + t.delta] for t in tasks], dtype=torch.float32)
        rows = [t.row for t in tasks if t.row is not None]
        x = (torch.stack(carried) + torch.stack(text))[:, None]
        output = self.decoder.forward(rows, x, at.expand(3, -1, -1))
        return list(output.last_hidden_state[:, -1])

    def _prefill(self, task: Task) -> torch.Tensor | None:
        """The next slice of the prompt; the last hidden state [H] once it is through."""
        if task.opening is None:
            assert task.prompt is not None
            task.token = task.text.popleft()
            task.opening = self.input.prefill(task.prompt, task.token, task.voice)
            task.delta, task.length = task.opening.delta, len(task.opening.rows)
            task.limit = min(task.limit, self.context - task.length)
            if task.limit < 1:
                raise Refused(
                    f"the user's turns are {task.length} tokens long; this server speaks within {self.context}",
                    code="context_length_exceeded",
                    param="messages",
                )
        opening = task.opening
        if task.row is None:
            opened = self.prefixes.open(task.length + task.limit, opening.names, opening.positions, states=False)
            if opened is None:
                return None  # until a neighbour ends
            task.row, _ = opened
            task.prefilled = task.row.length
            task.prompt = None
        start, end = task.prefilled, min(task.prefilled + self.slice, task.length)
        positions = torch.from_numpy(opening.positions)[:, None, start:end]
        output = self.decoder.forward([task.row], opening.rows[None, start:end], positions)
        task.prefilled = end
        if end < task.length:
            return None
        n = opening.user
        task.kept = Prefix(task.row, opening.names[:n], opening.positions[:, :n], np.zeros(n, bool))
        hidden: torch.Tensor = output.last_hidden_state[0, -1]
        return hidden

    def _frames(self, tasks: list[Task], hidden: torch.Tensor, emit: Emit) -> None:
        """Choose each row's first code, predict its residuals, say the frame."""
        first = choose(self.talker.codec_head(hidden), [t.sampler for t in tasks], self.suppressed)
        going: list[int] = []
        for i, (task, code) in enumerate(zip(tasks, first, strict=True)):
            task.chosen += 1
            if task.whole and code != self.end and task.chosen == task.limit:
                said = f"the text takes more than the {task.frames} frames of 80 ms that this voice speaks in one go"
                emit.failure(task, Refused(said, code="string_above_max_length", param="input"))
            elif code == self.end or task.chosen == task.limit:
                reason: Literal["stop", "length"] = "stop" if code == self.end else "length"
                emit.result(task, Spoken(task.frames, reason))
            else:
                going.append(i)
        if not going:
            return
        codes = [first[i] for i in going]
        residual, total = residual_codes(
            self.predictor, hidden[going], self.input.codec(codes), [tasks[i].sampler for i in going]
        )
        now = time.monotonic()
        for row, i in enumerate(going):
            task = tasks[i]
            task.carried, task.opening = total[row], None
            task.stepped = now
            if not task.frames:
                task.began = now
            task.frames += 1
            emit.chunk(task, Frame((codes[row], *residual[row]), task.token), span_ms=FRAME_MS)
