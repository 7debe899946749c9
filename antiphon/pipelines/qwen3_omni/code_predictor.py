"""The fifteen residual codes of a frame, for all rows of a step at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from antiphon.pipelines.engines.torch.sampling import Sampler, restricted

TOP_K = 50
TOP_P = 0.8
"""What the reference samples residual codes with, whenever the talker samples at all."""


class CodePredictor:
    """``net``: a Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration, whose layers are run here.

    Its own forward is written for any length and any cache. Fifteen of them make a frame of 80 ms, and at these sizes what
    they spend around the arithmetic is most of it: here the few places have fixed keys and values, and angles known before.
    """

    def __init__(self, net: Any) -> None:
        config = net.config
        self.heads, self.embeddings = net.lm_head, net.model.codec_embedding
        self._layers, self._norm = net.model.layers, net.model.norm
        self._shape = (config.num_key_value_heads, config.num_code_groups, config.head_dim)
        some = self.embeddings[0].weight
        places = torch.arange(config.num_code_groups, device=some.device)[None]
        with torch.inference_mode():
            self._cos, self._sin = (angles[0] for angles in net.model.rotary_emb(some, places))

    def begin(self, rows: int) -> FrameCache:
        """Room for the keys and values of one frame."""
        return FrameCache(len(self._layers), rows, self._shape, self._cos)

    def forward(self, x: torch.Tensor, cache: FrameCache) -> torch.Tensor:
        """``x`` [rows, width, H]: the next places of the frame. The last hidden states [rows, H]."""
        begin, end = cache.length, cache.length + x.shape[1]
        turn = self._cos[begin:end], self._sin[begin:end]
        for layer, held in zip(self._layers, cache.held, strict=True):
            x = x + _attend(layer.self_attn, _normed(layer.input_layernorm, x), held, begin, turn)
            x = x + layer.mlp(_normed(layer.post_attention_layernorm, x))
        cache.length = end
        return _normed(self._norm, x[:, -1])


class FrameCache:
    """Keys and values of one frame: for each layer [2, rows, heads, places, head dim]."""

    def __init__(self, layers: int, rows: int, shape: tuple[int, int, int], like: torch.Tensor) -> None:
        self.held = like.new_empty((layers, 2, rows, *shape))
        self.length = 0


def _attend(
    attention: Any, x: torch.Tensor, held: torch.Tensor, begin: int, turn: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Grouped-query attention over what is held of the frame and ``x`` [rows, width, H] behind it."""
    rows, width, _ = x.shape
    apart = (rows, width, -1, attention.head_dim)
    query = _turned(_normed(attention.q_norm, attention.q_proj(x).view(apart)).transpose(1, 2), turn)
    held[0, :, :, begin : begin + width] = _turned(
        _normed(attention.k_norm, attention.k_proj(x).view(apart)).transpose(1, 2), turn
    )
    held[1, :, :, begin : begin + width] = attention.v_proj(x).view(apart).transpose(1, 2)
    keys, values = held[:, :, :, : begin + width]
    # Of several places only the first ones of a frame come at once: then the causal mask is square.
    out = scaled_dot_product_attention(query, keys, values, is_causal=width > 1, scale=attention.scaling, enable_gqa=True)
    made: torch.Tensor = attention.o_proj(out.transpose(1, 2).reshape(rows, width, -1))
    return made


def _normed(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _turned(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary position embedding, the halves of a head turned against each other."""
    cos, sin = turn
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def residual_codes(
    predictor: CodePredictor, hidden: torch.Tensor, first: torch.Tensor, samplers: Sequence[Sampler]
) -> tuple[list[list[int]], torch.Tensor]:
    """``hidden`` [rows, H]: the talker's last state; ``first`` [rows, H]: the embedding of the first code.

    Returns the residual codes of each row and the sum of all sixteen embeddings [rows, H], the next input but for text.
    """
    cache = predictor.begin(len(samplers))
    x = torch.stack([hidden, first], dim=1)
    total = first.float()  # in half precision each addition would round; the reference rounds the sum, once
    groups: list[torch.Tensor] = []
    sampling = [(i, s) for i, s in enumerate(samplers) if not s.greedy]
    for head, embedding in zip(predictor.heads, predictor.embeddings, strict=True):
        scores = head(predictor.forward(x, cache)).float()
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
    return codes, total.to(first.dtype)
