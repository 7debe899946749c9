"""The local Thinker, run for an async stage: in a thread, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Request


class _Collected:
    """The Emit of one step."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.ended = False

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        self.said.append(data)

    def result(self, task: Any, data: Any = None) -> None:
        self.ended = True

    def failure(self, task: Any, error: Exception) -> None:
        raise error


class StandIn:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ThreadPoolExecutor-stand-in")
        self._turn = asyncio.Lock()
        self._thinker: Any = None

    async def load(self) -> None:
        """Raises WeightError when the local model is not installed."""
        await self._here(self._load)

    def _load(self) -> None:
        from antiphon.pipelines.local.thinker import Thinker  # loads the library: only when a stand-in is wanted

        self._thinker = Thinker()
        self._thinker.warm_up()

    async def answer(self, request: Request, body: GenerateRequest) -> AsyncGenerator[Any, None]:
        async with self._turn:
            task = await self._here(self._thinker.open, request, body)
            try:
                ended = False
                while not ended:
                    step = _Collected()
                    await self._here(self._thinker.step, [task], step)
                    for piece in step.said:
                        yield piece
                    ended = step.ended
            finally:
                await asyncio.shield(self._here(self._thinker.close, task, "finished"))

    def close(self) -> None:
        self._pool.submit(lambda: self._thinker.shut_down() if self._thinker is not None else None)
        self._pool.shutdown(wait=True)

    def _here(self, call: Any, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
