"""Choosing the next token of each row: its own parameters, its own generator, its own history.

The order is that of transformers' ``generate()``: repetition penalty, suppressed ids, temperature, top-k, top-p, draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from antiphon.pipelines.errors import Refused

COLD = 1e-5
"""Below this temperature scores divided by it leave float32, and no probabilities are left to draw from: it is greedy."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0, or below ``COLD``, is greedy. ``top_k`` 0 and ``top_p`` 1 do not restrict. ``seed`` None: not
    repeatable."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def changed(self, given: Mapping[str, Any], where: str) -> Sampling:
        """These parameters with what ``given`` names and sets. ``where`` is the request's field that holds them, "" the request
        itself. Raises Refused naming it and the bound."""
        known = {key: value for key, value in given.items() if value is not None and key in _BOUNDS}
        for key, value in known.items():
            low, high, kind = _BOUNDS[key]
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                name = f"{where}.{key}" if where else key
                raise Refused(f"{name} must be between {low:g} and {high:g}, not {value!r}", param=where or key)
        return replace(self, **known)


_BOUNDS: dict[str, tuple[float, float, Any]] = {
    "temperature": (0.0, 2.0, (int, float)),
    "top_k": (0, 1_000_000, int),
    "top_p": (0.0, 1.0, (int, float)),
    "repetition_penalty": (0.1, 10.0, (int, float)),
    "seed": (-(2**63), 2**63 - 1, int),
}
FIELDS = frozenset(_BOUNDS)


class Sampler:
    """One row's way of choosing. ``generator`` is this row's alone, so its draws do not depend on its neighbours."""

    def __init__(self, sampling: Sampling, vocabulary: int, device: torch.device) -> None:
        self.sampling = sampling
        self._device = device
        self._seen: torch.Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._generator: torch.Generator | None = None

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature < COLD

    @property
    def generator(self) -> torch.Generator:
        if self._generator is None:
            self._generator = torch.Generator(device=self._device)
            if self.sampling.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(self.sampling.seed)
        return self._generator

    def saw(self, tokens: Sequence[int]) -> None:
        """These ids were said: the repetition penalty weighs on them from now on."""
        if self._seen is not None and tokens:
            self._seen[torch.tensor(tokens, device=self._device)] = True

    def penalised(self, scores: torch.Tensor) -> torch.Tensor:
        if self._seen is None:
            return scores
        penalty = self.sampling.repetition_penalty
        return torch.where(self._seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)

    def draw(self, scores: torch.Tensor) -> torch.Tensor:
        """One id [1] from the scores [vocabulary] of this row, as they are."""
        # A row whose numbers are none draws anything: an error here would end the answers of all rows of the batch.
        return torch.multinomial(scores.softmax(-1).nan_to_num(1.0), 1, generator=self.generator)


def restricted(scores: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Scores [..., vocabulary] with everything outside top-k, then outside top-p, at minus infinity."""
    if top_k:
        least = scores.topk(min(top_k, scores.shape[-1])).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p < 1.0:
        ordered, order = scores.sort(descending=False)
        removed = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
        removed[..., -1:] = False
        scores = scores.masked_fill(removed.scatter(-1, order, removed), -torch.inf)
    return scores


def choose(
    logits: torch.Tensor,
    samplers: Sequence[Sampler],
    suppressed: torch.Tensor | None = None,
    allowed: Sequence[torch.Tensor | None] = (),
) -> list[int]:
    """The next id of each row of ``logits`` [rows, vocabulary]; ``suppressed`` [vocabulary] marks ids never said.

    ``allowed``: for each row, what alone it may say [vocabulary], or None; on any device.
    """
    scores = logits.float()
    if any(s.sampling.repetition_penalty != 1.0 for s in samplers):
        scores = torch.stack([s.penalised(row) for s, row in zip(samplers, scores, strict=True)])
    if suppressed is not None:
        scores = scores.masked_fill(suppressed, -torch.inf)
    if any(mask is not None for mask in allowed):
        rows = [
            row if mask is None else row.masked_fill(~mask.to(row.device), -torch.inf)
            for row, mask in zip(scores, allowed, strict=True)
        ]
        scores = torch.stack(rows)
    picked = scores.argmax(-1)
    for i, sampler in enumerate(samplers):
        if not sampler.greedy:
            s = sampler.sampling
            warm = scores[i] if s.temperature == 1.0 else scores[i] / s.temperature
            picked[i] = sampler.draw(restricted(warm, s.top_k, s.top_p))[0]
    chosen: list[int] = picked.tolist()
    for sampler, token in zip(samplers, chosen, strict=True):
        sampler.saw((token,))
    return chosen
