"""The conversations that are open, on whatever transport: to count them, to end them in an orderly way."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

log = logging.getLogger("antiphon.realtime")

GOING_AWAY = 1001
POLL_S = 0.05
CLOSING_S = 3.0
"""How long a closing handshake may take once everything has been said."""


class OpenSession(Protocol):
    """A conversation as the server's shutdown sees it."""

    @property
    def id(self) -> str: ...

    @property
    def busy(self) -> bool:
        """An answer is under way."""

    def hang_up(self, code: int, reason: str) -> None: ...


class Sessions:
    """Open sessions by id."""

    def __init__(self) -> None:
        self._open: dict[str, OpenSession] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, session: OpenSession) -> None:
        self._open[session.id] = session

    def remove(self, session: OpenSession) -> None:
        self._open.pop(session.id, None)

    def get(self, session_id: str) -> OpenSession | None:
        return self._open.get(session_id)

    async def drain(self, seconds: float, reason: str = "The server is shutting down.") -> None:
        """End idle sessions now, the others when their answer is over, all of them after ``seconds``; close code 1001."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        told: set[str] = set()
        while self._open and loop.time() < until + CLOSING_S:
            late = loop.time() >= until
            for session in list(self._open.values()):
                if session.id not in told and (late or not session.busy):
                    told.add(session.id)
                    session.hang_up(GOING_AWAY, reason)
            await asyncio.sleep(POLL_S)
        if self._open:
            log.warning("%d sessions did not close", len(self._open))
