"""A request's parameters for each stage, checked by name. Pure: the same function refuses at submit and serves in a stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.info import spelled

if TYPE_CHECKING:
    from antiphon.pipelines.engines.torch.sampling import Sampling
    from antiphon.pipelines.requests import GenerateRequest

CONTEXT_TOKENS = 32768
"""Prompt and answer together, unless a server says otherwise."""
THINKER_TOKENS = 1024
TALKER_FRAMES = 4096
"""The model's own limits when a request names none (transformers' ``generate()`` has the same)."""

PREFILL_SLICE = 512
"""Tokens of a prompt in one step."""
TALKER_KV_TOKENS = 98304
"""Rows of the talker's cache: sixteen answers of as many frames, and their prompts."""
LANGUAGES = ("en", "zh", "fr", "de", "ru", "it", "es", "pt", "ja", "ko")
"""What the published voices speak, ISO 639-1. The text alone tells which."""

CHUNK_FRAMES = 10
FIRST_CHUNK_FRAMES = 2
_SAMPLING = frozenset(("temperature", "top_k", "top_p", "repetition_penalty", "seed"))
_PIXELS = frozenset(f"{of}{bound}_pixels" for of in ("", "video_") for bound in ("min", "max", "total"))
_KNOWN: Mapping[str, frozenset[str]] = {
    "thinker": _SAMPLING | {"max_tokens", "stop_token_ids"},
    "talker": _SAMPLING | {"max_tokens"},
    "code2wav": frozenset(("chunk_frames", "first_chunk_frames")),
    "media": _PIXELS | {"video_fps", "video_max_frames", "use_audio_in_video"},
}
_SAMPLED = ("thinker", "talker")
ALIASES: Mapping[str, str] = {"talker_ar": "talker", "preprocessing": "media"}
"""Stage names that the parameters may also stand under."""


@dataclass(frozen=True, slots=True)
class Thinking:
    sampling: Sampling
    max_tokens: int
    stops: tuple[str, ...]
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Talking:
    """``cut``: the request itself says after how many frames."""

    sampling: Sampling
    max_frames: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Chunking:
    first: int
    then: int


def stage_params(request: GenerateRequest, stage: str) -> dict[str, Any]:
    """``request.stage_params`` for one stage, under its name or an alias."""
    names = [stage, *(alias for alias, name in ALIASES.items() if name == stage)]
    return {key: value for name in names for key, value in request.stage_params.get(name, {}).items()}


def stage_sampling(request: GenerateRequest, stage: str) -> dict[str, Any]:
    """What ``request.stage_sampling`` says for one stage, under its name or an alias."""
    names = [stage, *(alias for alias, name in ALIASES.items() if name == stage)]
    return {key: value for n in names if n in request.stage_sampling for key, value in request.stage_sampling[n].said().items()}


def check_stage_params(request: GenerateRequest) -> None:
    """Raise Refused naming the first stage or parameter that nobody here reads."""
    for stage, asked in request.stage_sampling.items():
        if ALIASES.get(stage, stage) not in _SAMPLED:
            raise Refused(f"stage_sampling.{stage}: the stages that sample are {', '.join(_SAMPLED)}", param="stage_sampling")
        if unknown := sorted(asked.said().keys() - _KNOWN[ALIASES.get(stage, stage)] - {"stop"}):
            raise Refused(f"stage_sampling.{stage}.{unknown[0]} is not read", param="stage_sampling")
        if asked.stop and ALIASES.get(stage, stage) == "talker":
            raise Refused(f"stage_sampling.{stage}.stop: the talker makes codes, not text", param="stage_sampling")
    for stage, given in request.stage_params.items():
        known = _KNOWN.get(ALIASES.get(stage, stage))
        if known is None:
            raise Refused(f"stage_params.{stage}: this pipeline's stages are {', '.join(_KNOWN)}", param="stage_params")
        if unknown := sorted(set(given) - known):
            raise Refused(f"stage_params.{stage}.{unknown[0]} is not one of {', '.join(sorted(known))}", param="stage_params")


def generation_defaults(held: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What a checkpoint's generation_config says: sampling (nothing unless it samples) and the ids that end an answer.

    Raises WeightError by name: every request would be refused for it.
    """
    from antiphon.pipelines.engines.torch.sampling import Sampling

    sampling = dict(held) if held.get("do_sample") else {}
    ends = held.get("eos_token_id") or ()
    ends = tuple(ends) if isinstance(ends, list | tuple) else (ends,)
    try:
        Sampling().changed(sampling, "generation_config.json")
    except Refused as error:
        raise WeightError(str(error)) from error
    if not all(isinstance(end, int) for end in ends):
        raise WeightError("generation_config.json: eos_token_id names no token ids")
    return sampling, ends


def thinker_params(request: GenerateRequest, defaults: Mapping[str, Any]) -> Thinking:
    """The checkpoint's defaults (its generation_config), the request's sampling, its stage's parameters, its stage's sampling:
    the last wins.

    A request that sets only ``top_p`` or ``top_k`` over a greedy default samples at temperature 1, as it means to.
    """
    from antiphon.pipelines.engines.torch.sampling import Sampling

    given = stage_params(request, "thinker")
    layers = {"": request.sampling.said(), **_layers(request, "thinker")}
    named = {key for said in layers.values() for key, value in said.items() if value is not None}
    warm = "temperature" not in named and "temperature" not in defaults and not named.isdisjoint(("top_p", "top_k"))
    sampling = Sampling(temperature=1.0 if warm else 0.0).changed(defaults, "generation_config")
    for where, said in layers.items():
        sampling = sampling.changed(said, where)
    return Thinking(
        sampling,
        _limit(layers, 1_000_000) or THINKER_TOKENS,
        request.thinking.stop,
        frozenset(_ids(given.get("stop_token_ids", ()))),
    )


def talker_params(request: GenerateRequest) -> Talking:
    """The model's published defaults for speech, changed by ``stage_params.talker``, then by ``stage_sampling.talker``; the
    request's seed seeds it too."""
    from antiphon.pipelines.engines.torch.sampling import Sampling

    layers = _layers(request, "talker")
    sampling = Sampling(temperature=0.9, top_k=50, top_p=1.0, repetition_penalty=1.05, seed=request.sampling.seed)
    for where, said in layers.items():
        sampling = sampling.changed(said, where)
    asked = _limit(layers, 32_768)
    return Talking(sampling, asked or TALKER_FRAMES, cut=asked is not None)


def chunking(request: GenerateRequest, first: int, then: int) -> Chunking:
    """Frames in the first chunk of audio and in the others."""
    given = stage_params(request, "code2wav")
    return Chunking(
        _count(given.get("first_chunk_frames", first), "stage_params.code2wav.first_chunk_frames", 1, 300),
        _count(given.get("chunk_frames", then), "stage_params.code2wav.chunk_frames", 1, 300),
    )


def in_order(speakers: Collection[str]) -> tuple[str, ...]:
    """A checkpoint's voices; Ethan first where there is one, which is the reference implementation's default."""
    return tuple(sorted(map(str, speakers), key=lambda name: name != "ethan"))


def speaker(request: GenerateRequest, speakers: Collection[str]) -> str:
    """The voice's name as the checkpoint spells it; the first one of ``in_order`` is "default"."""
    if request.voice.name.lower() == "default":
        return next(iter(speakers))
    if name := spelled(request.voice.name, speakers):
        return name
    raise Refused(f"voice {request.voice.name!r} is not one of {', '.join(speakers)}", code="unknown_voice", param="voice")


def check_language(language: str) -> None:
    """Raise Refused for a language (a tag such as "en" or "en-US") that the voices do not speak; "" is the text's own."""
    if language and language.replace("_", "-").split("-")[0].lower() not in LANGUAGES:
        raise Refused(
            f"this model's voices cannot speak {language!r}; they speak: {', '.join(LANGUAGES)}",
            code="unsupported_language",
            param="language",
        )


def _layers(request: GenerateRequest, stage: str) -> dict[str, dict[str, Any]]:
    """What a request says for one stage alone, by the field that says it; the last wins."""
    return {f"stage_params.{stage}": stage_params(request, stage), f"stage_sampling.{stage}": stage_sampling(request, stage)}


def _limit(layers: Mapping[str, Mapping[str, Any]], most: int) -> int | None:
    """``max_tokens`` of the last that names it."""
    limit = None
    for where, said in layers.items():
        if (value := said.get("max_tokens")) is not None:
            limit = _count(value, f"{where}.max_tokens" if where else "max_tokens", 1, most)
    return limit


def _count(value: Any, name: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{name} must be an integer from {low} to {high}, not {value!r}", param=name)
    return value


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list | tuple) or not all(isinstance(i, int) and i >= 0 for i in value):
        raise Refused("stage_params.thinker.stop_token_ids must be a list of token ids", param="stage_params")
    return list(value)
