"""What an operator may set of each stage, checked where it is declared: a wrong name is said before a weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.qwen3_omni.media.budget import Budget
from antiphon.pipelines.qwen3_omni.media.fetch import UrlPolicy

_ON_DEVICE: Mapping[str, Any] = {"device": str, "dtype": str}
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "preprocessing": {
        "budget": Budget,
        "urls": UrlPolicy,
        "cache_bytes": int,
        "video_places": int,
        "context": int,
        "speech_turn": str,
    },
    "audio_encoder": {**_ON_DEVICE, "cache_bytes": int},
    "image_encoder": {**_ON_DEVICE, "cache_bytes": int},
    "mm_aggregate": {},
    "thinker": {**_ON_DEVICE, "context": int, "kv_tokens": int, "prefill_slice": int, "kept_rows": int},
    "decode": {},
    "talker_ar": {**_ON_DEVICE, "kv_tokens": int, "prefill_slice": int, "kept_rows": int},
    "code2wav": {**_ON_DEVICE, "chunk_frames": int, "first_chunk_frames": int},
    "transcriber": {},
}
_SGLANG: Mapping[str, Any] = {"context": int, "engine": dict[str, Any]}
"""Of the thinker, when SGLang plays it."""


def check(args: Mapping[str, Mapping[str, Any]], stages: Mapping[str, str]) -> None:
    """``args`` by stage; ``stages``: name -> factory. Raises ConfigError naming the stage and the argument.

    A stage that somebody else plays (a server) is not checked: its arguments are his.
    """
    for stage, given in args.items():
        if stage not in stages:
            raise ConfigError(f"stage_args: {stage!r} is not a stage of this pipeline; they are {', '.join(stages)}")
        known = _SGLANG if ".sglang_thinker:" in stages[stage] else _TYPES.get(stage)
        if known is None or ".qwen3_omni." not in stages[stage]:
            continue
        for name, value in given.items():
            if name not in known:
                raise ConfigError(f"stage_args.{stage}.{name}: it takes {', '.join(known) or 'nothing'}")
            _convert(f"stage_args.{stage}.{name}", value, known[name])


def _convert(name: str, value: Any, wanted: Any) -> None:
    if wanted in (Budget, UrlPolicy) and isinstance(value, Mapping):
        names = [f.name for f in fields(wanted)]
        if unknown := sorted(set(value) - set(names)):
            raise ConfigError(f"{name}.{unknown[0]}: it takes {', '.join(names)}")
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from error
    if wanted is int and value < 0:
        raise ConfigError(f"{name} must not be less than 0")
