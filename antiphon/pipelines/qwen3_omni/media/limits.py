"""What media take of the context and may be, for doors to know before one is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.info import PictureLimits
from antiphon.pipelines.qwen3_omni.media.budget import Budget

SPEECH_TOKENS = 13
"""A second: a hundred frames through three convolutions that halve."""


def picture_limits(folder: str, args: Mapping[str, Any]) -> PictureLimits | None:
    """``args``: of the preprocessing stage. None for a folder or an installation of which that stage will say what is wrong."""
    try:
        from antiphon.pipelines.qwen3_omni.media.pictures import Patcher

        patcher = Patcher(folder)
    except (ImportError, WeightError):
        return None
    budget = Budget(**{"places": args["context"], **(args.get("budget") or {})})
    return PictureLimits(
        max_bytes=budget.image_bytes,
        max_pixels=budget.image_pixels,
        max_tokens=budget.places,
        least=patcher.least,
        most=patcher.most,
        place=patcher.factor**2,
    )
