"""The local thinker for a value of --thinker."""

from __future__ import annotations

from pathlib import Path

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.local import thinker_model
from antiphon.pipelines.local.thinker import Thinker


def model_file(spec: str) -> Path:
    """The file for "" (the default), "weight:NAME", "gguf:PATH" or "hf:REPO/FILE" (fetched). Raises WeightError."""
    if spec.startswith("gguf:"):
        path = Path(spec.removeprefix("gguf:")).expanduser()
        if not path.is_file():
            raise WeightError(f"--thinker {spec}: there is no such file")
        return path
    if spec.startswith("hf:"):
        return weights.ensure_hub(spec.removeprefix("hf:"))
    if spec.startswith("weight:"):
        return thinker_model.installed(spec.removeprefix("weight:"))
    return thinker_model.installed()


def make_thinker(model: str, context: int) -> Thinker:
    """The stage's factory; runs on the lane that steps it."""
    return Thinker(model_file(model), context=context)
