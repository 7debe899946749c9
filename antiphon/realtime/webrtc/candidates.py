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

_SERVER = re.compile(r"(?P<kind>stuns?|turns?):(?:(?P<user>[^:@/?]+):(?P<secret>[^@]*)@)?(?P<rest>.+)")
_HOST_LINE = re.compile(r"^a=candidate:(\S+) (\d) udp (\d+) (\d+\.\d+\.\d+\.\d+) (\d+) typ host.*$", re.MULTILINE)


def ice_servers(urls: tuple[str, ...]) -> list[RTCIceServer]:
    """``stun:HOST:PORT`` and ``turn:USER:SECRET@HOST:PORT[?transport=tcp]``. Raises ``ValueError`` naming the wrong one."""
    servers = []
    for url in urls:
        found = _SERVER.fullmatch(url)
        if found is None:
            raise ValueError(f"{url.split('@')[-1]!r} is no ICE server; write stun:HOST:PORT or turn:USER:SECRET@HOST:PORT")
        servers.append(RTCIceServer(f"{found['kind']}:{found['rest']}", username=found["user"], credential=found["secret"]))
    return servers


def port_range(text: str) -> tuple[int, int] | None:
    """ "FIRST-LAST", or None for any. Raises ``ValueError``."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+)-(\d+)", text.replace(" ", ""))
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        raise ValueError(f"{text!r} is no range of ports; write FIRST-LAST, for example 40000-40100")
    return int(found[1]), int(found[2])


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
