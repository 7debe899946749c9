"""Qwen3-Omni without a graph: the modules of its stages in a plain loop, which the graph's own cost is measured against."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from antiphon.pipelines.engines.torch.sampling import Sampler, Sampling, choose
from antiphon.pipelines.qwen3_omni.code2wav import Code2Wav
from antiphon.pipelines.qwen3_omni.code_predictor import residual_codes
from antiphon.pipelines.qwen3_omni.payloads import Layout, Prompt
from antiphon.pipelines.qwen3_omni.talker import Talker
from antiphon.pipelines.qwen3_omni.thinker import Thinker
from antiphon.pipelines.qwen3_omni.vocoder import Voice

QUESTION = "Hello, how are you today?"
"""The same for every row: rows of other lengths would be batched otherwise in the two, which is not what is compared."""
FIRST, THEN = 2, 10
"""Frames in the first chunk of sound and in the others."""


class BareLoop:
    """The modules of the stages, stepped in a plain loop: what the graph's own cost is measured against."""

    def __init__(self, folder: str, place: dict[str, Any]) -> None:
        self.thinker, self.talker = Thinker(folder, **place), Talker(folder, **place)
        self.code2wav = Code2Wav(folder, device=place.get("device", "cpu"))
        self.tokenizer = self.thinker.tokenizer
        _go_on(self.thinker.lm_head, self.thinker.eos)
        _go_on(self.talker.talker.codec_head, (self.talker.end,))

    def prompt(self) -> list[int]:
        turns = [{"role": "user", "content": QUESTION}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @torch.inference_mode()
    def run(self, batch: int, tokens: int, frames: int) -> tuple[float, float, int]:
        """Seconds, CPU seconds, and frames made."""
        begun, busy = time.perf_counter(), time.process_time()
        prompts = [self.prompt() for _ in range(batch)]
        greedy = [Sampler(Sampling(), self.thinker.lm_head.out_features, self.thinker.place.device) for _ in prompts]
        mind = [self.thinker.decoder.cache.open(len(p) + tokens) for p in prompts]
        hidden = torch.cat([self._prefill(row, ids) for row, ids in zip(mind, prompts, strict=True)])
        said = choose(self.thinker.lm_head(hidden), greedy)
        speech = _Speech(self, prompts, said, frames)
        for step in range(frames):
            speech.step(said if step < tokens - 1 else None)
            if step < tokens - 1:  # the last one ends the answer and is not spoken, but it is made
                ids = torch.tensor([[t] for t in said], device=self.thinker.place.device)
                at = torch.tensor([[len(p) + step] for p in prompts], dtype=torch.float32)
                output = self.thinker.decoder.forward(mind, self.thinker.embed(ids), at.expand(3, -1, -1))
                said = choose(self.thinker.lm_head(output.last_hidden_state[:, -1]), greedy)
        speech.end()
        for row in mind:
            self.thinker.decoder.cache.close(row)
        return time.perf_counter() - begun, time.process_time() - busy, speech.made

    def _prefill(self, row: Any, ids: list[int]) -> torch.Tensor:
        embeds = self.thinker.embed(torch.tensor([ids], device=self.thinker.place.device))
        at = torch.arange(len(ids), dtype=torch.float32).expand(3, 1, -1)
        hidden: torch.Tensor = self.thinker.decoder.forward([row], embeds, at).last_hidden_state[:, -1]
        return hidden


def _go_on(head: nn.Module, ends: Collection[int]) -> None:
    """Graph and loop share the module and go on to their limits: real weights would end before, in the graph alone."""
    ids = torch.tensor(sorted(ends), device=next(head.parameters()).device)

    def barred(module: nn.Module, args: Any, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(-1, ids, -torch.inf)

    head.register_forward_hook(barred)


class _Speech:
    """Talker and Code2Wav of the bare loop."""

    def __init__(self, loop: BareLoop, prompts: list[list[int]], said: list[int], frames: int) -> None:
        self.loop, self.limit, self.made, self.steps = loop, frames, 0, 0
        talker = loop.talker
        sampling = Sampling(repetition_penalty=1.05)
        self.samplers = [Sampler(sampling, talker.talker.vocab_size, talker.place.device) for _ in prompts]
        speaker = next(iter(talker.config.talker_config.speaker_id))
        filled = [
            talker.input.prefill(Prompt(np.array(ids), Layout()), token, speaker)
            for ids, token in zip(prompts, said, strict=True)
        ]
        self.lengths = [len(opening.rows) for opening in filled]
        self.rows = [talker.decoder.cache.open(n + frames) for n in self.lengths]
        states = [
            talker.decoder.forward([row], each.rows[None], torch.from_numpy(each.positions)[:, None]).last_hidden_state[:, -1]
            for row, each in zip(self.rows, filled, strict=True)
        ]
        self.hidden = torch.cat(states)
        self.voices = [Voice() for _ in prompts]
        self.codes: list[list[list[int]]] = [[] for _ in prompts]
        self.want = FIRST

    def step(self, said: list[int] | None) -> None:
        """One frame of every row."""
        talker = self.loop.talker
        if self.steps:
            text = talker.input.text(said) if said is not None else talker.input.pad.expand(len(self.rows), -1)
            at = torch.tensor([[n + self.steps - 1] for n in self.lengths], dtype=torch.float32)
            x = (self.carried + text)[:, None]
            self.hidden = talker.decoder.forward(self.rows, x, at.expand(3, -1, -1)).last_hidden_state[:, -1]
        self.steps += 1
        if self.steps == self.limit:
            return
        first = choose(talker.talker.codec_head(self.hidden), self.samplers, talker.suppressed)
        residual, self.carried = residual_codes(talker.predictor, self.hidden, talker.input.codec(first), self.samplers)
        for held, code, rest in zip(self.codes, first, residual, strict=True):
            held.append([code, *rest])
        self.made += len(first)
        if len(self.codes[0]) == self.want:
            self._sound()

    def _sound(self) -> None:
        if self.codes[0]:
            self.loop.code2wav.vocoder.push(self.voices, self.codes)
            self.codes, self.want = [[] for _ in self.codes], THEN

    def end(self) -> None:
        self._sound()
        for row in self.rows:
            self.loop.talker.decoder.cache.close(row)
