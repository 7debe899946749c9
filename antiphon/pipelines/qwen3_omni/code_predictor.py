"""The fifteen residual codes of a frame, for all rows of a step at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

from antiphon.pipelines.engines.torch.sampling import Sampler, restricted

TOP_K = 50
TOP_P = 0.8
"""What the reference samples residual codes with, whenever the talker samples at all."""


def residual_codes(
    predictor: Any, hidden: torch.Tensor, first: torch.Tensor, samplers: Sequence[Sampler]
) -> tuple[list[list[int]], torch.Tensor]:
    """``hidden`` [rows, H]: the talker's last state; ``first`` [rows, H]: the embedding of the first code.

    Returns the residual codes of each row and the sum of all sixteen embeddings [rows, H], the next input but for text.
    """
    cache = DynamicCache(config=predictor.config)
    x = torch.stack([hidden, first], dim=1)
    total = first
    groups: list[torch.Tensor] = []
    sampling = [(i, s) for i, s in enumerate(samplers) if not s.greedy]
    for head, embedding in zip(predictor.lm_head, predictor.model.codec_embedding, strict=True):
        state = predictor.model(inputs_embeds=x, cache=cache, use_cache=True).last_hidden_state[:, -1]
        scores = head(state).float()
        picked = scores.argmax(-1)
        if sampling:
            scores = restricted(scores, TOP_K, TOP_P)
        for i, sampler in sampling:
            picked[i] = sampler.draw(scores[i])[0]
        x = embedding(picked)[:, None]
        total = total + x[:, 0]
        groups.append(picked)
    # Read once: on a GPU each reading waits for all that is queued.
    codes: list[list[int]] = torch.stack(groups, 1).tolist()
    return codes, total
