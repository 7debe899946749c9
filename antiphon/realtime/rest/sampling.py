"""How the next token is chosen: a request's own fields, and ``stage_sampling``, the same for one stage of the graph alone."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from antiphon.pipelines.requests import Sampling
from antiphon.realtime.rest.fields import convert, invalid

Positive = Annotated[int, msgspec.Meta(ge=1)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Penalty = Annotated[float, msgspec.Meta(gt=0, le=2)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Stops = str | list[str]
MAX_STOPS = 16


class OfStage(msgspec.Struct, forbid_unknown_fields=True):
    """What ``stage_sampling`` may say for one stage."""

    max_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    repetition_penalty: Penalty | None = None
    seed: Seed | None = None
    stop: Stops | None = None


def by_stage(given: dict[str, Any] | None) -> dict[str, Sampling]:
    """``stage_sampling``; which stages there are the pipeline knows. Raises ``BadRequest`` by the field's path."""
    made = {}
    for stage, fields in (given or {}).items():
        path = f"stage_sampling.{stage[:64]}"
        held = msgspec.structs.asdict(convert(fields, OfStage, path))
        made[stage] = Sampling(**{**held, "stop": stops(held["stop"], f"{path}.stop")})
    return made


def stops(given: Stops | None, path: str = "stop") -> tuple[str, ...]:
    """Raises ``BadRequest`` for too many, or empty ones."""
    held = (given,) if isinstance(given, str) else tuple(given or ())
    if len(held) > MAX_STOPS or not all(held):
        raise invalid(path, f"expected at most {MAX_STOPS} strings, none of them empty")
    return held
