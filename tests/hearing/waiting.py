"""Waiting for other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(what: Callable[[], object], seconds: float = 10.0) -> None:
    """Until the condition holds; fails when it never does."""
    for _ in range(int(seconds / 0.005)):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")
