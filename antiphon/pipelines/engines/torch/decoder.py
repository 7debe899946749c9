"""A decoder body run over rows of a continuous batch: the model's own layers, our cache and our loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from antiphon.pipelines.engines.torch.paged import PagedCache, Row
from antiphon.pipelines.engines.torch.place import Place


class RowDecoder:
    """``body`` is a transformers decoder: embeddings in, normed hidden states out, a ``cache`` argument.

    A forward takes rows that are all ``width`` tokens wide: one row in prefill (a slice of its prompt), any number in
    decode (one token each).
    """

    def __init__(self, body: nn.Module, tokens: int, place: Place) -> None:
        self.body = body
        self.place = place
        self.cache = PagedCache(tokens, place)

    def forward(self, rows: Sequence[Row], embeds: torch.Tensor, positions: torch.Tensor, **extra: Any) -> Any:
        """``embeds`` [rows, width, hidden], ``positions`` [3, rows, width] or [rows, width]; the body's own output."""
        step = self.cache.begin(rows, embeds.shape[1])
        output = self.body(
            inputs_embeds=embeds.to(self.place.device, self.place.dtype),
            attention_mask=step.mask,
            position_ids=positions.to(self.place.device),
            cache=step,
            use_cache=True,
            **extra,
        )
        step.finish()
        return output


def kv_bytes(config: Any, tokens: int, dtype: torch.dtype) -> int:
    """What ``tokens`` tokens of keys and values take, for a transformers decoder config."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * dim * tokens * dtype.itemsize)
