"""Random weights of the published sizes of Qwen3-Omni, made on the device: nothing is read from disk."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.qwen3_omni import model


def resize(folder: Path, sizes: dict[str, Any]) -> None:
    """The tiny checkpoint's config at other sizes, with its own tokenizer's ids."""
    held = json.loads((folder / "config.json").read_text())
    for part, values in copy.deepcopy(sizes).items():
        if not isinstance(values, dict):
            continue
        for key, value in values.items():
            if isinstance(value, dict) or (not key.endswith("_id") and key != "speaker_id"):
                held[part][key] = value
        held[part].pop("layer_types", None)
    first = held["talker_config"]["text_config"]["vocab_size"] - 1024
    for offset, name in enumerate(("codec_pad_id", "codec_bos_id", "codec_eos_token_id", "codec_nothink_id")):
        held["talker_config"][name] = first + 100 + offset
    held["talker_config"] |= {"codec_think_bos_id": first + 108, "codec_think_eos_id": first + 109}
    held["talker_config"]["speaker_id"] = {"ethan": first + 254}
    (folder / "config.json").write_text(json.dumps(held))


def random(part: str, config: Any, folder: Any, place: Place, cache_bytes: int = 0) -> Any:
    """``model.load`` without a checkpoint."""
    module = model.build(part, config)
    for owner in module.modules():
        for key, value in list(owner.named_parameters(recurse=False)):
            made = torch.empty(value.shape, device=place.device, dtype=place.dtype).normal_(0, 0.02)
            setattr(owner, key, torch.nn.Parameter(made, requires_grad=False))
        for key, value in list(owner.named_buffers(recurse=False)):
            owner._buffers[key] = value.to(place.device)
    return module.eval()
