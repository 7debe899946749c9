"""Drawing a token: against transformers' own processors over random parameters, and where its numbers would run out."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from antiphon.pipelines.engines.torch.sampling import Sampler, Sampling, choose

CPU = torch.device("cpu")


def theirs(scores: torch.Tensor, s: Sampling, said: list[int], suppressed: torch.Tensor, dice: torch.Generator) -> int:
    ids, row = torch.tensor([said], dtype=torch.long), scores[None].clone()
    if s.repetition_penalty != 1.0 and said:
        row = RepetitionPenaltyLogitsProcessor(s.repetition_penalty)(ids, row)
    if suppressed.any():
        row = SuppressTokensLogitsProcessor(suppressed.nonzero().flatten().tolist())(ids, row)
    row = TemperatureLogitsWarper(float(s.temperature))(ids, row)
    if s.top_k:
        row = TopKLogitsWarper(s.top_k)(ids, row)
    if s.top_p < 1.0:
        row = TopPLogitsWarper(s.top_p)(ids, row)
    return int(torch.multinomial(row.softmax(-1), 1, generator=dice).item())


def test_draws_equal_transformers_over_random_parameters() -> None:
    pick = random.Random(3)
    for case in range(400):
        size = pick.choice([2, 5, 64, 440])
        scores = torch.randn(size, generator=torch.Generator().manual_seed(case)) * pick.choice([0.01, 1.0, 30.0])
        if pick.random() < 0.3:  # equal scores at the borders of top-k and top-p
            scores[torch.randint(0, size, (size // 2,), generator=torch.Generator().manual_seed(case))] = scores[0].item()
        suppressed = torch.zeros(size, dtype=torch.bool)
        suppressed[size - pick.choice([0, size // 3]) :] = True
        sampling = Sampling(
            temperature=pick.choice([1e-5, 0.1, 0.7, 1.0, 2.0]),
            top_k=pick.choice([0, 1, 5, 2000]),
            top_p=pick.choice([0.0, 0.05, 0.5, 0.9, 1.0]),
            repetition_penalty=pick.choice([0.1, 1.0, 1.05, 10.0]),
            seed=case,
        )
        said = [pick.randrange(size) for _ in range(pick.choice([0, 1, 20]))]
        sampler, dice = Sampler(sampling, size, CPU), torch.Generator().manual_seed(case)
        sampler.saw(said)
        for _ in range(4):
            (token,) = choose(scores[None], [sampler], suppressed)
            assert token == theirs(scores, sampling, said, suppressed, dice), (case, sampling)
            said.append(token)


@pytest.mark.parametrize("temperature", [1e-45, 1e-40, 1e-6])
def test_a_temperature_next_to_nothing_is_greedy(temperature: float) -> None:
    """Divided by it, scores would be infinite: nothing could be drawn, and the step would fail its neighbours too."""
    scores = torch.randn(2, 440, generator=torch.Generator().manual_seed(1)) * 5
    cold, warm = Sampler(Sampling(temperature, seed=1), 440, CPU), Sampler(Sampling(1.0, seed=2), 440, CPU)
    alone = Sampler(Sampling(1.0, seed=2), 440, CPU)
    assert choose(scores, [cold, warm]) == [int(scores[0].argmax()), *choose(scores[1:], [alone])]
    assert cold.greedy and not warm.greedy
