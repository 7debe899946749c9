"""A tiny random Qwen3-Omni checkpoint folder: 0.43 M parameters, the published layout, built in seconds, nothing shipped.

The consistency rules of its config are the model's own: every codec special and speaker id lies in the last 1024 ids of
the talker's vocabulary (generate() suppresses those), the code predictor shares the talker's hidden size, the first
codebooks share one size, role words and the line break are single tokens.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer, Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

CODEBOOK = 64
GROUPS = 16
HIDDEN = 32
ACCEPT_LAYER = 2
SPEAKERS = {"chelsie": CODEBOOK + 253, "ethan": CODEBOOK + 254, "aiden": CODEBOOK + 255}
PIXELS = {"shortest_edge": 1024, "longest_edge": 65536}

SPECIALS = {
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
    "audio_token": "<|audio_pad|>",
    "tts_pad_token": "<tts_pad>",
    "tts_bos_token": "<tts_text_bos>",
    "tts_eos_token": "<tts_text_eod>",
    "im_start_token": "<|im_start|>",
}

CORPUS = [
    "system\nYou are Qwen, a virtual human, capable of perceiving auditory and visual inputs.",
    "user\nHello, how are you today? What can you hear in this audio?",
    "assistant\nI can hear a short tone, then a voice that says hello. The sound is clear.",
    "The quick brown fox jumps over the lazy dog. 0123456789",
    "stream audio frames as soon as they are ready",
] * 4

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""What the published templates of this family (Qwen2.5 on) tell the model of its tools."""

CHAT_TEMPLATE = (
    "{% macro said(content) %}{% if content is string %}{{ content }}{% else %}{% for c in content %}"
    "{% if c.type == 'audio' %}<|audio_start|><|audio_pad|><|audio_end|>"
    "{% elif c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif c.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
    "{% if tools %}<|im_start|>system\n"
    "{% if messages[0].role == 'system' %}{{ said(messages[0].content) + '\n\n' }}{% endif %}"
    f"{{{{ {TOOLS_HEAD!r} }}}}"
    "{% for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}"
    f"{{{{ {TOOLS_TAIL!r} }}}}<|im_end|>\n{{% endif %}}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' + said(m.content) + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% elif not (tools and loop.first and m.role == 'system') %}"
    "<|im_start|>{{ m.role + '\n' + said(m.content) }}"
    "{% for call in m.tool_calls or () %}"
    "{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{% if call.function.arguments is string %}{{ call.function.arguments }}"
    "{% else %}{{ call.function.arguments | tojson }}{% endif %}{{ '}\n</tool_call>' }}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> Any:
    """A byte-level BPE trained on five sentences, with the family's special tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=480, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(CORPUS, trainer)
    with tempfile.TemporaryDirectory() as folder:
        bpe.model.save(folder)
        made = Qwen2Tokenizer(
            vocab=f"{folder}/vocab.json",
            merges=f"{folder}/merges.txt",
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            extra_special_tokens=SPECIALS,
        )
    made.add_tokens(["<tool_call>", "</tool_call>"])
    made.chat_template = CHAT_TEMPLATE
    for word in ("system", "user", "assistant", "\n"):
        assert len(made.encode(word)) == 1, word
    return made


def config(tok: Any, std: float = 0.2) -> Qwen3OmniMoeConfig:
    """The published structure at toy sizes."""
    token = tok.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    plain_rope = {"rope_type": "default", "rope_theta": 1e6}
    media = {
        "audio_token_id": token("<|audio_pad|>"),
        "image_token_id": token("<|image_pad|>"),
        "video_token_id": token("<|video_pad|>"),
        "vision_start_token_id": token("<|vision_start|>"),
        "audio_start_token_id": token("<|audio_start|>"),
        "position_id_per_seconds": 13,
        "initializer_range": std,
    }
    specials = CODEBOOK + 100
    thinker = {
        **media,
        "text_config": {
            "vocab_size": (len(tok) + 7) // 8 * 8, "hidden_size": HIDDEN, "intermediate_size": 48,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
            "max_position_embeddings": 4096, "rope_parameters": dict(rope), "initializer_range": std,
        },
        "audio_config": {
            "num_mel_bins": 128, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 32,
            "d_model": 16, "max_source_positions": 1500, "n_window": 50, "n_window_infer": 800,
            "output_dim": HIDDEN, "conv_chunksize": 500, "downsample_hidden_size": 4,
        },
        "vision_config": {
            "depth": 3, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": HIDDEN,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1, 2],
        },
        "vision_end_token_id": token("<|vision_end|>"),
        "audio_end_token_id": token("<|audio_end|>"),
        "user_token_id": token("user"),
    }  # fmt: skip
    talker = {
        **media,
        "text_config": {
            "vocab_size": CODEBOOK + 1024, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 3,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2,
            "norm_topk_prob": True, "max_position_embeddings": 4096, "rope_parameters": dict(rope),
            "initializer_range": std,
        },
        "code_predictor_config": {
            "vocab_size": CODEBOOK, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "num_code_groups": GROUPS,
            "max_position_embeddings": 4096, "initializer_range": std, "rope_parameters": dict(plain_rope),
        },
        "num_code_groups": GROUPS, "thinker_hidden_size": HIDDEN, "accept_hidden_layer": ACCEPT_LAYER,
        "codec_pad_id": specials, "codec_bos_id": specials + 1, "codec_eos_token_id": specials + 2,
        "codec_nothink_id": specials + 7, "codec_think_bos_id": specials + 8, "codec_think_eos_id": specials + 9,
        "audio_end_token_id": token("<|audio_end|>"), "spatial_merge_size": 2, "speaker_id": SPEAKERS,
    }  # fmt: skip
    code2wav = {
        "codebook_size": CODEBOOK, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
        "intermediate_size": 48, "sliding_window": 72, "num_hidden_layers": 2, "num_quantizers": GROUPS,
        "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "decoder_dim": 64,
        "initializer_range": std, "max_position_embeddings": 8000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    return Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=talker,
        code2wav_config=code2wav,
        enable_audio_output=True,
        initializer_range=std,
        im_start_token_id=token("<|im_start|>"),
        im_end_token_id=token("<|im_end|>"),
        tts_pad_token_id=token("<tts_pad>"),
        tts_bos_token_id=token("<tts_text_bos>"),
        tts_eos_token_id=token("<tts_text_eod>"),
        system_token_id=token("system"),
        user_token_id=token("user"),
        assistant_token_id=token("assistant"),
    )


def enliven(model: Any, seed: int) -> None:
    """Random weights under which every part of the network is heard.

    transformers leaves the talker's experts uninitialised when built from a config, and starts layer scales so small
    that code2wav would be nearly linear: an error in either would not show in the waveform.
    """
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("talker.") and ".mlp.experts." in name:
                weight.copy_(torch.randn(weight.shape, generator=rng) * 0.2)
        for name, weight in model.code2wav.named_parameters():
            if name.endswith(("layer_scale.scale", ".gamma")):
                weight.fill_(0.5)
            elif name.startswith("decoder.") and weight.dim() == 3:
                fan = weight.shape[0] * 2 if "block.1" in name else weight.shape[1] * weight.shape[2]
                weight.copy_(torch.randn(weight.shape, generator=rng) * (0.6 / fan**0.5))
            elif name.endswith((".alpha", ".beta")):
                weight.copy_(torch.randn(weight.shape, generator=rng) * 0.1)


def build(folder: Path, seed: int = 0, shard: str = "600KB") -> Any:
    """Write the checkpoint (sharded, with its index and per-expert tensors) and return the model it was saved from."""
    tok = tokenizer()
    cfg = config(tok)
    torch.manual_seed(seed)
    model = Qwen3OmniMoeForConditionalGeneration(cfg).eval()
    enliven(model, seed + 1)
    model.generation_config.eos_token_id = cfg.im_end_token_id
    model.save_pretrained(folder, max_shard_size=shard)
    tok.save_pretrained(folder)
    preprocessor = {
        "feature_size": 128, "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "chunk_length": 30,
        "padding_side": "right", "return_attention_mask": True, "feature_extractor_type": "WhisperFeatureExtractor",
        "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "size": PIXELS,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    # transformers 5.24: a prompt with both audio and an image asks the talker's config for this.
    model.talker.config.audio_config = cfg.thinker_config.audio_config
    return model
