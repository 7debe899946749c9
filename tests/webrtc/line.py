"""A bad line between a caller and a server: a box on the way, like a NAT, that every datagram of a call has to pass.

Neither end is touched: offer and answer are rewritten so that the two know of nothing but the box, and whatever they send
is a real datagram on a real socket, which the box loses, delays or, delaying unevenly, overtakes by another.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

Address = tuple[str, int]
_CANDIDATE = re.compile(r"^a=candidate:(?P<head>\S+ 1 udp \d+) (?P<host>\d+\.\d+\.\d+\.\d+) (?P<port>\d+) typ host.*$", re.M)
_ANY_CANDIDATE = re.compile(r"^a=(candidate|end-of-candidates).*\r?\n", re.MULTILINE)


@dataclass
class Weather:
    """``loss``: the share of datagrams that is lost; ``spoilt``: that arrives with a wrong byte in it.

    A datagram takes ``delay_s``, and up to ``jitter_s`` more.
    """

    loss: float = 0.0
    spoilt: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    blocked: bool = False


class Socket(asyncio.DatagramProtocol):
    """One of the box's sockets."""

    def __init__(self, arrived: Callable[[bytes, Address], None]) -> None:
        self._arrived = arrived
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._arrived(data, addr)

    def error_received(self, exc: OSError) -> None:
        """A port that has been closed meanwhile: as lost as on any line."""

    def send(self, data: bytes, to: Address) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.sendto(data, to)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Line:
    """Use: ``line.hidden(offer)`` goes to the server, ``await line.through(answer)`` to the caller.

    ``weather`` may change at any time. ``passed`` and ``lost`` count datagrams, ``overtaken`` those behind a later one.
    """

    def __init__(self, weather: Weather, seed: int = 5) -> None:
        self.weather = weather
        self.passed = self.lost = self.overtaken = 0
        self._drawn = random.Random(seed)
        self._front: Socket | None = None
        self._server: Address = ("", 0)
        self._backs: dict[Address, Socket] = {}
        self._opening: dict[Address, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent = self._newest = 0

    @staticmethod
    def hidden(offer: str) -> str:
        """The caller's offer without its addresses: the server learns of it by the packets that come through the box."""
        return _ANY_CANDIDATE.sub("", offer)

    async def through(self, answer: str) -> str:
        """The server's answer, with the box's address for the server's."""
        found = _CANDIDATE.search(answer)
        assert found is not None, answer
        self._server = (found["host"], int(found["port"]))
        self._front = await self._bind(self._from_caller)
        assert self._front.transport is not None
        host, port = self._front.transport.get_extra_info("sockname")
        line = f"a=candidate:{found['head']} {host} {port} typ host\r\na=end-of-candidates\r\n"
        first, *rest = re.split(r"^(?=m=)", _ANY_CANDIDATE.sub("", answer), flags=re.MULTILINE)
        return first + "".join(section + line for section in rest)

    def inject(self, data: bytes) -> None:
        """A datagram to the server as if the caller had sent it."""
        for back in self._backs.values():
            back.send(data, self._server)

    def close(self) -> None:
        for socket in (self._front, *self._backs.values()):
            if socket is not None:
                socket.close()
        for task in self._tasks:
            task.cancel()

    async def _bind(self, arrived: Callable[[bytes, Address], None]) -> Socket:
        where = (self._server[0], 0)
        _, socket = await asyncio.get_running_loop().create_datagram_endpoint(lambda: Socket(arrived), local_addr=where)
        return socket

    def _from_caller(self, data: bytes, caller: Address) -> None:
        """Each of the caller's sockets gets one of its own towards the server."""
        if caller in self._backs:
            self._carry(self._backs[caller], data, self._server)
            return
        waiting = self._opening.setdefault(caller, [])
        waiting.append(data)
        if len(waiting) == 1:
            task = asyncio.ensure_future(self._open(caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, caller: Address) -> None:
        front = self._front
        assert front is not None
        self._backs[caller] = await self._bind(lambda data, _: self._carry(front, data, caller))
        for data in self._opening.pop(caller):
            self._carry(self._backs[caller], data, self._server)

    def _carry(self, by: Socket, data: bytes, to: Address) -> None:
        weather = self.weather
        if weather.blocked or self._drawn.random() < weather.loss:
            self.lost += 1
            return
        if data and self._drawn.random() < weather.spoilt:
            at = self._drawn.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        self._sent += 1
        number, wait = self._sent, weather.delay_s + self._drawn.random() * weather.jitter_s

        def arrive() -> None:
            self.passed += 1
            self.overtaken += number < self._newest
            self._newest = max(self._newest, number)
            by.send(data, to)

        if wait:
            asyncio.get_running_loop().call_later(wait, arrive)
        else:
            arrive()


@asynccontextmanager
async def line(**weather: float) -> AsyncIterator[Line]:
    """``line(loss=0.02, jitter_s=0.06)``"""
    made = Line(Weather(**weather))  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()
