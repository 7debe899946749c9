"""What waits for a client to read it: in order, bounded in bytes and in time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.realtime.errors import Stalled

MAX_UNSENT = 8 << 20
"""Bytes. With the pacing of audio a client that reads stays far below it, whatever its line."""
FULL = MAX_UNSENT // 2
"""Bytes past which the client's next event waits: who asks for much at once must not be taken for one who does not read."""
SEND_TIMEOUT_S = 20.0
"""The longest that one frame may wait for the peer to make room."""


class Outbox:
    """One writer drains it by ``run``; ``put`` never waits."""

    def __init__(self, limit: int = MAX_UNSENT, timeout_s: float = SEND_TIMEOUT_S) -> None:
        self._limit = limit
        self._timeout_s = timeout_s
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Event()
        self._close: tuple[int, str] | None = None
        self._overrun = False
        self._ended = False
        self._room = asyncio.Event()
        self._room.set()
        self.unsent = 0

    def put(self, text: str) -> None:
        """A frame to send. Past the limit everything is dropped at once, and the writer ends with ``Stalled``."""
        if self._close is not None or self._overrun:
            return
        self._waiting.append(text)
        self.unsent += len(text)
        if self.unsent > self._limit:
            self._overrun = True
            self._waiting.clear()
        self._mind_room()
        self._changed.set()

    async def room(self) -> None:
        """Until so much has been read that more may be asked for; at once when nothing will be sent any more."""
        await self._room.wait()

    @property
    def ending(self) -> str | None:
        """How the server ended the connection, if it did: the close code in words."""
        if self._overrun:
            return "stalled"
        return None if self._close is None else f"closed_{self._close[0]}"

    def close(self, code: int, reason: str) -> None:
        """Close with this code when everything before it has been sent; the first call counts."""
        if self._close is None:
            self._close = (code, reason)
            self._changed.set()

    async def run(self, send: Callable[[str], Awaitable[None]], close: Callable[[int, str], Awaitable[None]]) -> None:
        """Send until closed. Raises ``Stalled``."""
        try:
            await self._run(send, close)
        finally:
            self._ended = True
            self._mind_room()

    def _mind_room(self) -> None:
        if self._ended or self.unsent <= FULL:
            self._room.set()
        else:
            self._room.clear()

    async def _run(self, send: Callable[[str], Awaitable[None]], close: Callable[[int, str], Awaitable[None]]) -> None:
        while True:
            if self._overrun:
                raise Stalled(f"more than {self._limit >> 20} MiB were not read")
            if self._waiting:
                text = self._waiting.popleft()
                await self._in_time(send(text))
                self.unsent -= len(text)
                self._mind_room()
            elif self._close is not None:
                await self._in_time(close(*self._close))
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _in_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await sending
        except TimeoutError:
            self._overrun = True
            raise Stalled(f"nothing was read for {self._timeout_s:g} s") from None
