"""The published model's sizes (Qwen3-Omni-30B-A3B-Instruct) and the names its checkpoint has: one tensor an expert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_ROPE = {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
_MEDIA = {
    "audio_token_id": 151675,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "audio_start_token_id": 151669,
    "position_id_per_seconds": 13,
}
CONFIG: dict[str, Any] = {
    "enable_audio_output": True,
    "thinker_config": {
        **_MEDIA,
        "text_config": {
            "vocab_size": 152064, "hidden_size": 2048, "intermediate_size": 768, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
            "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 65536,
            "rope_parameters": _ROPE,
        },
        "audio_config": {
            "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "d_model": 1280, "max_source_positions": 1500, "n_window": 50, "n_window_infer": 800,
            "output_dim": 2048, "conv_chunksize": 500, "downsample_hidden_size": 480,
        },
        "vision_config": {
            "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048,
            "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
        },
    },
    "talker_config": {
        **_MEDIA,
        "text_config": {
            "vocab_size": 3072, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 20,
            "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "moe_intermediate_size": 384,
            "shared_expert_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 6,
            "norm_topk_prob": True, "max_position_embeddings": 65536, "rope_parameters": dict(_ROPE),
        },
        "code_predictor_config": {
            "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "num_code_groups": 16,
        },
        "num_code_groups": 16, "thinker_hidden_size": 2048, "accept_hidden_layer": 24, "spatial_merge_size": 2,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
    },
    "code2wav_config": {
        "codebook_size": 2048, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 3072, "sliding_window": 72, "num_hidden_layers": 8, "num_quantizers": 16,
        "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "decoder_dim": 1536,
    },
}  # fmt: skip
_MODULES = {
    "thinker.model.language_model.": "thinker.model.",
    "thinker.model.audio_tower.": "thinker.audio_tower.",
    "thinker.model.visual.": "thinker.visual.",
}
"""Where transformers keeps a part, and what the checkpoint calls it."""


def unpacked(whole: Any) -> dict[str, torch.Size]:
    """The checkpoint's names and shapes of a model, by transformers' parameters (which pack the experts)."""
    named = {}
    for name, parameter in whole.named_parameters():
        for mine, theirs in _MODULES.items():
            if name.startswith(mine):
                name = theirs + name[len(mine) :]
        named[name] = parameter.shape
    return unpacked_names(named)


def unpacked_names(named: Mapping[str, torch.Size]) -> dict[str, torch.Size]:
    """Packed experts as one tensor an expert and projection."""
    names: dict[str, torch.Size] = {}
    for name, shape in named.items():
        stem, _, last = name.rpartition(".")
        if stem.endswith(".experts") and last == "gate_up_proj":
            half = torch.Size((shape[1] // 2, shape[2]))
            names |= {f"{stem}.{e}.{p}.weight": half for e in range(shape[0]) for p in ("gate_proj", "up_proj")}
        elif stem.endswith(".experts") and last == "down_proj":
            names |= {f"{stem}.{e}.down_proj.weight": torch.Size(shape[1:]) for e in range(shape[0])}
        else:
            names[name] = shape
    return names
