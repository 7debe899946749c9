"""Where a door stands: with the version in its path and without, because base URLs are given either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.routing import Route


def both(path: str) -> list[str]:
    """A path under ``/v1/`` as it is, and without that."""
    return [path, path.removeprefix("/v1")] if path.startswith("/v1/") else [path]


def doors_at(path: str, endpoint: Callable[..., Any], method: str) -> list[Route]:
    """The routes of one door."""
    return [Route(p, endpoint, methods=[method]) for p in both(path)]
