"""The data channel ``oai-events``: JSON text both ways, bounded, in messages that every caller can take."""

from __future__ import annotations

import asyncio
from typing import Any

LABEL = "oai-events"
MESSAGE = 64 << 10
"""Bytes in one message at most: what a peer takes that says nothing about it (RFC 8841)."""
BUFFERED = 256 << 10
"""Bytes handed to SCTP and not yet acknowledged, past which the writer waits."""
POLL_S = 0.02


class Channel:
    """One caller's channel, from before it is open."""

    def __init__(self) -> None:
        self._channel: Any = None
        self._open = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.readyState == "open"

    def opened(self, channel: Any) -> None:
        """The caller's channel has come."""
        self._channel = channel
        self._open.set()

    async def send(self, text: str) -> None:
        """Waits for the channel, and for room in it. Raises ``ConnectionError`` once it is closed."""
        await self._open.wait()
        while self._channel.readyState == "open" and self._channel.bufferedAmount > BUFFERED:  # noqa: ASYNC110 - its event is for one threshold
            await asyncio.sleep(POLL_S)
        if self._channel.readyState != "open":
            raise ConnectionError("the data channel is closed")
        self._channel.send(text)

    async def flush(self) -> None:
        """Until everything sent has been acknowledged, or the channel is closed."""
        while self._channel is not None and self._channel.readyState == "open" and self._channel.bufferedAmount:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
