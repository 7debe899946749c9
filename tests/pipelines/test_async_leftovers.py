"""What an aborted request held in an asynchronous stage goes with it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import ClassVar

from antiphon.pipelines.client import Client
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import AsyncStage, Chunk, Inputs, Output, Request


class Holding:
    """Stands for the megabytes of a picture."""


class Waiting(AsyncStage):
    """Waits without end for what it has begun."""

    held: ClassVar[weakref.WeakSet[Holding]] = weakref.WeakSet()

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        holding = Holding()
        self.held.add(holding)
        await asyncio.Event().wait()
        yield Output(holding)


async def test_an_aborted_request_leaves_nothing_behind() -> None:
    """A task that was cancelled keeps its error, and with that its frames, which must not keep the task: such a ring waits for
    the collector, which counts objects and not their megabytes."""
    stage = StageConfig(name="waiting", factory=f"{__name__}:Waiting", terminal="text", max_open=64)
    client = Client(LocalRuntime(PipelineConfig("waits", "waiting", [stage])))
    await client.start()
    gc.disable()
    try:
        for turn in range(3):
            work = client.generate(GenerateRequest(id=f"r{turn}", task="speech", terminals=("text",), text="x"))
            async with asyncio.timeout(10):
                while not Waiting.held:  # noqa: ASYNC110 - it is on another thread
                    await asyncio.sleep(0.01)
            work.abort("client")
            await asyncio.wait_for(work.released(), 10)
            async with asyncio.timeout(10):
                while Waiting.held:  # noqa: ASYNC110 - its loop has turns to take yet
                    await asyncio.sleep(0.01)
    finally:
        gc.enable()
        await client.stop()
