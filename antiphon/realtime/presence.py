"""Is the client still there? One watch over an HTTP request's ``receive`` from the end of its body on.

Starlette looks for a disconnect only while it streams, and then only at some protocol versions. Here a client that hangs
up ends the work done for it at any time, also while it waits for an answer that comes in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from antiphon.realtime.errors import ClientGone

T = TypeVar("T")


class Presence:
    """Begin it after the body was read; ``close`` it when the answer is out."""

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.get_running_loop().create_task(_until_gone(receive))

    @property
    def gone(self) -> bool:
        return self._watch.done()

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``. It is cancelled, and ``ClientGone`` raised, when the client hangs up first."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((task, self._watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise ClientGone("the client has closed its connection")
        return task.result()

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
