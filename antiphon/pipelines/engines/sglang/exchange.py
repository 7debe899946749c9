"""One request at the engine, from its ids to the engine's own word that it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

from antiphon.pipelines.engines.openai.server import Trouble
from antiphon.pipelines.engines.sglang.messages import Reading
from antiphon.pipelines.engines.sglang.transport import Transport
from antiphon.pipelines.errors import PipelineError

CONFIRM_S = 5.0
"""How long a request that is given up waits for the engine's own word that it has stopped."""
QUEUED = 4096
"""Messages read ahead of the answer's reader: a whole answer."""


class Exchange:
    """It is read in a task of its own, so that who gives it up can still hear the engine out. Call ``close`` in any case."""

    def __init__(self, transport: Transport, ids: list[int], sampling: dict[str, Any]) -> None:
        # All of one length: an abort ends every request whose name begins with the one it names.
        self.rid = secrets.token_hex(16)
        self.reading = Reading()
        self._transport = transport
        self._mail: asyncio.Queue[Any] = asyncio.Queue(QUEUED)
        self._reader = asyncio.ensure_future(self._read(ids, sampling))

    async def next(self) -> list[int]:
        """The ids that are new, "[]" at an end without one. Raises Refused, StageFailed or Trouble."""
        mail = await self._mail.get()
        if isinstance(mail, Exception):
            raise mail
        return self.reading.feed(mail)

    async def close(self) -> None:
        """When this returns, the engine has stopped, or its server has been told by the end of the connection."""
        if not self.reading.finish and not self._reader.done():
            with contextlib.suppress(TimeoutError, Trouble, PipelineError):
                async with asyncio.timeout(CONFIRM_S):
                    await self._transport.abort(self.rid)
                    while not self.reading.finish:
                        await self.next()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self, ids: list[int], sampling: dict[str, Any]) -> None:
        try:
            async with contextlib.aclosing(self._transport.stream(ids, sampling, self.rid)) as messages:
                async for message in messages:
                    await self._mail.put(message)
        except Exception as error:  # noqa: BLE001  # handed to the one who reads the mail
            await self._mail.put(error)
            return
        await self._mail.put(Trouble("broke off in the middle of its answer"))
