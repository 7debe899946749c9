"""Which language model the CPU voice thinks with, and where its file is."""

from __future__ import annotations

import logging
from pathlib import Path

from antiphon.pipelines import weights

log = logging.getLogger("antiphon.llama_cpp")

DEFAULT = "qwen2.5-coder-0.5b-instruct-q4_k_m"
"""Of 40 everyday requests held out it answered 29, the smaller one 25 (``benchmarks/answers``); it can also choose tools."""
SMALL = "smollm2-135m-instruct-q4_1"
"""A fifth of the download and of the time for a token."""
_REQUANTISED = {DEFAULT: "q4_0"}
"""On the tuning half it answered 69 of 81 as Q4_0 and 68 as it comes, in two thirds of the time."""


def ensure(name: str = DEFAULT, progress: weights.Progress | None = None) -> Path:
    """The GGUF file to load, fetched and requantised if needed (the latter takes seconds, once). Raises WeightError."""
    return _ready(name, weights.ensure(name, progress))


def installed(name: str = DEFAULT) -> Path:
    """The same without fetching."""
    return _ready(name, weights.path(name))


def _ready(name: str, folder: Path) -> Path:
    file = folder / weights.CATALOG[name].files[0].name
    kind = _REQUANTISED.get(name)
    if kind is None:
        return file
    from antiphon.pipelines.engines.llama_cpp.requantise import requantised  # the library: only where it is needed

    try:
        return requantised(file, weights.cache_folder() / "requantised", kind)
    except OSError as error:  # a cache that cannot be written to, or a full disk
        log.warning("%s is used as it comes, which is slower: %s", file.name, error)
        return file
