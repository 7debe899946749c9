"""Where callers can reach this server: its addresses, within a range of UDP ports, and the address others see it under."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from typing import Any

from aioice import ice
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aiortc import RTCIceServer

from antiphon.realtime.webrtc.addresses import ice_server

_HOST_LINE = re.compile(r"^a=candidate:(\S+) (\d) udp (\d+) (\d+\.\d+\.\d+\.\d+) (\d+) typ host.*$", re.MULTILINE)


def ice_servers(settings: tuple[str, ...]) -> list[RTCIceServer]:
    """What aiortc calls them. Raises ``ValueError`` naming the wrong one."""
    found = map(ice_server, settings)
    return [RTCIceServer(server.url, username=server.user, credential=server.secret) for server in found]


def confine(connection: Any, ports: tuple[int, int]) -> None:
    """Have an ``aioice.Connection`` take its host candidates from a range of ports, before it gathers.

    aioice has no such setting and takes any free port; this replaces that one step of it for this connection.
    """
    beyond_hosts = connection.get_component_candidates

    async def gather(component: int, addresses: list[str], timeout: int = 5) -> list[Candidate]:  # noqa: ASYNC109 - aioice calls it so
        candidates = [c for address in addresses if (c := await _bind(connection, component, address, ports)) is not None]
        if not candidates:
            raise ConnectionError(f"no UDP port is free in {ports[0]}-{ports[1]}")
        found = candidates + list(await beyond_hosts(component, [], timeout))  # TURN; STUN asks through sockets of its own
        return found + await _seen_from_outside(connection, within_s=timeout)

    connection.get_component_candidates = gather


async def _bind(connection: Any, component: int, address: str, ports: tuple[int, int]) -> Candidate | None:
    loop = asyncio.get_running_loop()
    for port in _from_anywhere(ports):
        try:
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: ice.StunProtocol(connection), local_addr=(address, port)
            )
        except OSError:
            continue
        host, bound = transport.get_extra_info("sockname")[:2]
        protocol.local_candidate = Candidate(
            foundation=candidate_foundation("host", "udp", host),
            component=component,
            transport="udp",
            priority=candidate_priority(component, "host"),
            host=host,
            port=bound,
            type="host",
        )
        connection._protocols.append(protocol)
        return protocol.local_candidate
    return None


async def _seen_from_outside(connection: Any, within_s: float) -> list[Candidate]:
    if not connection.stun_server:
        return []
    asked = [
        ice.server_reflexive_candidate(protocol, connection.stun_server)
        for protocol in connection._protocols
        if protocol.local_candidate.type == "host" and ":" not in protocol.local_candidate.host
    ]
    try:
        async with asyncio.timeout(within_s):
            answers = await asyncio.gather(*asked, return_exceptions=True)
    except TimeoutError:
        return []
    return [answer[0] for answer in answers if not isinstance(answer, BaseException)]


def _from_anywhere(ports: tuple[int, int]) -> Iterator[int]:
    """Every port of the range once, beginning at a random one: calls that begin together do not race for the first."""
    first, last = ports
    start = random.randint(first, last)
    yield from range(start, last + 1)
    yield from range(first, start)


def announced(answer: str, address: str) -> str:
    """The answer with this address beside every host candidate's own: the server behind a NAT that maps ports one to one."""

    def beside(line: re.Match[str]) -> str:
        foundation, component, priority, host, port = line.groups()
        mapped = f"{foundation}m {component} udp {int(priority) >> 1} {address} {port} typ srflx raddr {host} rport {port}"
        return f"{line[0].rstrip()}\r\na=candidate:{mapped}\r"

    return _HOST_LINE.sub(beside, answer)
