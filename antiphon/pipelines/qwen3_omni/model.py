"""The network's parts, each built from the config without memory and filled from its own tensors of the checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import Qwen3OmniMoeConfig
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as network

from antiphon.pipelines.engines.torch.checkpoint import Checkpoint, unallocated, weight_bytes
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.errors import WeightError

# It has not heard of the keys of M-RoPE that every config of this family holds, and would say so six times at each start.
logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)

PREFIXES: Mapping[str, Mapping[str, str]] = {
    "audio_encoder": {"": "thinker.audio_tower."},
    "image_encoder": {"": "thinker.visual."},
    "thinker": {"model.": "thinker.model.", "lm_head.": "thinker.lm_head."},
    "talker": {"talker.": "talker.", "text_embedding.": "thinker.model.embed_tokens."},
    "code2wav": {"": "code2wav."},
}
"""Part -> its parameter prefix -> the checkpoint's prefix."""


class ThinkerNet(nn.Module):
    """The language model of the thinker: ``model`` (embeddings, layers, norm) and ``lm_head``."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        text = config.thinker_config.text_config
        self.model = network.Qwen3OmniMoeThinkerTextModel._from_config(text)
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)


class TalkerNet(nn.Module):
    """The talker with its code predictor, and the thinker's embedding table: spoken text is rows of it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.talker = network.Qwen3OmniMoeTalkerForConditionalGeneration._from_config(config.talker_config)
        text = config.thinker_config.text_config
        self.text_embedding = nn.Embedding(text.vocab_size, text.hidden_size)


def build(part: str, config: Any) -> nn.Module:
    """One of ``PREFIXES``, its parameters on the meta device. Raises WeightError for sizes that no network can have."""
    make = _MAKERS[part]
    try:
        with unallocated():
            return make(config)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise WeightError(f"config.json describes no {part} that can be built ({why})") from error


_MAKERS: Mapping[str, Callable[[Any], nn.Module]] = {
    "audio_encoder": lambda config: network.Qwen3OmniMoeAudioEncoder._from_config(config.thinker_config.audio_config),
    "image_encoder": lambda config: network.Qwen3OmniMoeVisionEncoder._from_config(config.thinker_config.vision_config),
    "thinker": ThinkerNet,
    "talker": TalkerNet,
    "code2wav": lambda config: network.Qwen3OmniMoeCode2Wav._from_config(config.code2wav_config),
}


def load(part: str, config: Any, folder: str | Path, place: Place, cache_bytes: int = 0) -> Any:
    """The part, ready to run. Raises WeightError, before anything is read, when it does not fit with ``cache_bytes``."""
    checkpoint = Checkpoint(folder)
    module = build(part, config)
    need = weight_bytes(module, place.dtype)
    place.require(part, need, cache_bytes)
    try:
        checkpoint.load(module, PREFIXES[part], place)
    except torch.OutOfMemoryError as error:  # another process took what was free a moment ago
        place.require(part, need, cache_bytes)
        raise WeightError(f"{part}: {place.device} ran out of memory while its weights were loaded") from error
    return module


def read_config(folder: str | Path) -> Any:
    """The folder's config. Raises WeightError when it is not one of Qwen3-Omni, or holds no talker for speech."""
    try:
        kind = _read_object(Path(folder) / "config.json").get("model_type")
    except OSError as error:
        raise WeightError(f"{str(folder)!r} holds no readable config.json") from error
    if kind != "qwen3_omni_moe":
        raise WeightError(f"{str(folder)!r} holds a {kind!r} model, not a qwen3_omni_moe one")
    try:
        config = Qwen3OmniMoeConfig.from_pretrained(folder)
    except (AttributeError, LookupError, StrictDataclassError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise WeightError(f"config.json is not one of a qwen3_omni_moe model: {why}") from error
    _check_ids(config, ("im_start_token_id", "im_end_token_id"), config.thinker_config.text_config.vocab_size)
    return config


def read_generation(folder: str | Path) -> dict[str, Any]:
    """generation_config.json, or nothing."""
    try:
        return _read_object(Path(folder) / "generation_config.json")
    except OSError:
        return {}


def _read_object(path: Path) -> dict[str, Any]:
    """Raises OSError for a file that cannot be read, WeightError for one that holds no JSON object."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightError(f"{path.name} is not JSON") from error
    if not isinstance(held, dict):
        raise WeightError(f"{path.name} holds no JSON object")
    return held


def check_codec(config: Any) -> None:
    """The consistency that speech rests on; a config that breaks it would speak noise. Raises WeightError by name."""
    talker, wav = config.talker_config, config.code2wav_config
    predictor = talker.code_predictor_config
    same = {
        "codebook": (predictor.vocab_size, wav.codebook_size),
        "code groups": (talker.num_code_groups, wav.num_quantizers),
        "predictor groups": (predictor.num_code_groups, wav.num_quantizers),
        "predictor hidden size": (predictor.hidden_size, talker.text_config.hidden_size),
        "thinker hidden size": (talker.thinker_hidden_size, config.thinker_config.text_config.hidden_size),
    }
    for name, (one, other) in same.items():
        if one != other:
            raise WeightError(f"config.json: {name} is {one} on one side and {other} on the other")
    layers = config.thinker_config.text_config.num_hidden_layers
    if not 0 <= talker.accept_hidden_layer <= layers:
        raise WeightError(f"config.json: accept_hidden_layer is {talker.accept_hidden_layer}; the thinker has {layers} layers")
    if not talker.speaker_id:
        raise WeightError("config.json: talker_config.speaker_id names no speaker")
    _check_ids(config, _TTS_IDS, config.thinker_config.text_config.vocab_size)
    _check_ids(talker, _CODEC_IDS, talker.text_config.vocab_size)
    for name, id in talker.speaker_id.items():
        _check_id(f"speaker_id.{name}", id, talker.text_config.vocab_size)


_TTS_IDS = ("tts_pad_token_id", "tts_bos_token_id", "tts_eos_token_id")
_CODEC_IDS = (
    *("codec_pad_id", "codec_bos_id", "codec_eos_token_id"),
    *("codec_nothink_id", "codec_think_bos_id", "codec_think_eos_id"),
)


def _check_ids(config: Any, names: Sequence[str], size: int) -> None:
    for name in names:
        _check_id(name, getattr(config, name), size)


def _check_id(name: str, id: object, size: int) -> None:
    """A row that its table has not fails whatever reads it; on a GPU the process with it."""
    if not isinstance(id, int) or not 0 <= id < size:
        raise WeightError(f"config.json: {name} is {id!r}; its vocabulary has {size} ids")


def as_tensor(array: Any, place: Place) -> torch.Tensor:
    """A payload's floats on the stage's device in the stage's dtype."""
    return torch.from_numpy(array).to(place.device, place.dtype)
