"""Which model file the local thinker loads."""

from __future__ import annotations

from pathlib import Path

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.local.thinker import Thinker

DEFAULT_WEIGHT = "smollm2-135m-instruct-q4_1"


def model_file(spec: str) -> Path:
    """"" is the default weight, "gguf:PATH" a file, "hf:REPO/FILE" one that was fetched. Raises WeightError."""
    if spec.startswith("gguf:"):
        path = Path(spec.removeprefix("gguf:")).expanduser()
        if not path.is_file():
            raise WeightError(f"--thinker {spec}: there is no such file")
        return path
    if spec.startswith("hf:"):
        return weights.ensure_hub(spec.removeprefix("hf:"))
    files = sorted(weights.path(DEFAULT_WEIGHT).glob("*.gguf"))
    if not files:
        raise WeightError(f"weight {DEFAULT_WEIGHT} holds no model: antiphon models verify {DEFAULT_WEIGHT}")
    return files[0]


def make_thinker(model: str, context: int) -> Thinker:
    """The stage's factory; runs on the lane that steps it."""
    return Thinker(model_file(model), context=context)
