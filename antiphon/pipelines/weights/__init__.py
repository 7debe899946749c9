"""Named weights: data, not dependencies. Fetched once, checked by sha256, offline ever after.

    folder = weights.ensure("silero-vad", progress)     # fetches when needed
    folder = weights.path("silero-vad")                 # never fetches

``ANTIPHON_CACHE``: where they are kept. ``ANTIPHON_WEIGHT_<NAME>``: the user's own folder for one.
``ANTIPHON_OFFLINE``: never fetch. ``configure`` takes the folders of a settings file. Every failure is
``errors.WeightError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from antiphon.pipelines.weights.catalog import CATALOG, HIBARI_DURATIONS, File, Weight
from antiphon.pipelines.weights.hub import ensure_hub
from antiphon.pipelines.weights.store import Description, Progress, Store, cache_folder, variable

__all__ = [
    "CATALOG",
    "HIBARI_DURATIONS",
    "Description",
    "File",
    "Progress",
    "Store",
    "Weight",
    "cache_folder",
    "configure",
    "describe",
    "ensure",
    "ensure_hub",
    "names",
    "path",
    "variable",
    "verify",
]

_overrides: dict[str, Path] = {}


def configure(overrides: Mapping[str, str | Path]) -> None:
    """Take these weights from the user's own folders (of a settings file); the hashes must still be right."""
    _overrides.clear()
    _overrides.update({name: Path(place).expanduser() for name, place in overrides.items()})


def _store() -> Store:
    return Store(overrides=_overrides)


def names() -> tuple[str, ...]:
    """Every weight that has a name here."""
    return _store().names()


def describe(name: str) -> Description:
    return _store().describe(name)


def ensure(name: str, progress: Progress | None = None) -> Path:
    """The folder of that weight, fetched if needed; raises WeightError."""
    return _store().ensure(name, progress)


def path(name: str) -> Path:
    """The folder of that weight; never fetches; raises WeightError when it is not installed."""
    return _store().path(name)


def verify(name: str) -> Path:
    """Read every byte and compare hashes; raises WeightError naming what differs."""
    return _store().verify(name)
