"""Reachability, the one graph algorithm that planning and validation share."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def walk(start: Iterable[str], onward: Callable[[str], Iterable[str]]) -> set[str]:
    """Everything reachable from ``start``, the start included."""
    seen: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(onward(name))
    return seen
