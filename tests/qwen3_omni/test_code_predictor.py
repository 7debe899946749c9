"""The frame's inner loop against the forward of transformers' own module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeTalkerCodePredictorConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration,
)

from antiphon.pipelines.engines.torch.sampling import Sampler, Sampling
from antiphon.pipelines.qwen3_omni.code_predictor import CodePredictor, residual_codes

GROUPS, HIDDEN = 16, 48


def predictor(heads: int, kv_heads: int, bias: bool) -> Any:
    config = Qwen3OmniMoeTalkerCodePredictorConfig(
        vocab_size=64, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=3, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=16, num_code_groups=GROUPS, attention_bias=bias, rms_norm_eps=1e-6,
    )  # fmt: skip
    torch.manual_seed(3)
    net = Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net


@pytest.mark.parametrize(("heads", "kv_heads", "bias"), [(4, 4, False), (4, 2, False), (3, 1, True)])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_states_equal_transformers(
    heads: int, kv_heads: int, bias: bool, rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Normed states are of size one; bfloat16 has eight bits."""
    net = predictor(heads, kv_heads, bias)
    net.to(dtype)
    inputs = torch.randn(rows, GROUPS, HIDDEN).to(dtype)
    ours, theirs = CodePredictor(net), DynamicCache(config=net.config)
    cache = ours.begin(rows)
    with torch.inference_mode():
        for begin, end in [(0, 2), *((n, n + 1) for n in range(2, GROUPS))]:
            x = inputs[:, begin:end]
            wanted = net.model(inputs_embeds=x, cache=theirs, use_cache=True).last_hidden_state[:, -1]
            assert (ours.forward(x, cache) - wanted).abs().max() < tolerance


def test_the_sum_of_a_frame_is_rounded_once() -> None:
    """transformers adds the sixteen embeddings by one ``sum``, which is of float32 inside: half a place of bfloat16 at most."""
    net = predictor(4, 2, False).to(torch.bfloat16)
    hidden, first = torch.randn(2, 3, HIDDEN).to(torch.bfloat16)
    sampler = Sampler(Sampling(), 64, torch.device("cpu"))
    with torch.inference_mode():
        codes, total = residual_codes(CodePredictor(net), hidden, first, [sampler] * 3)
        rows = torch.tensor(codes).T
        exact = first.double() + sum(e(row).double() for e, row in zip(net.model.codec_embedding, rows, strict=True))
    assert total.dtype == torch.bfloat16
    assert ((total.double() - exact).abs() <= exact.abs() * 2**-8 * 1.001 + 1e-6).all()
