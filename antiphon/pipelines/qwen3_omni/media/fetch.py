"""Media by URL, under a policy: schemes, bytes, time, redirects, and no address that is not public unless allowed. What all
requests together have fetched is bounded too.

The address that was checked is the address that is connected to: a name that resolves to something else a moment later
(DNS rebinding) gains nothing. Redirects are followed by hand, each under the same checks. Proxies of the environment are
not used.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx

from antiphon.pipelines.errors import Refused, StageFailed

for _talker in ("httpx", "httpcore"):
    # They log every address, with the keys and names in it: those are the user's, and no log's.
    logging.getLogger(_talker).setLevel(logging.WARNING)


_lookups = ThreadPoolExecutor(64)
"""Names are looked up in threads of their own, one for each request that a server takes in: a name whose server never answers
keeps one for half a minute, and neither another's name nor the threads that decode media may wait for that."""


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """``allow_private``: also addresses of this machine and its networks. ``seconds``: for the whole fetch.
    ``held_bytes``: fetched and not yet decoded, of all requests together, of films and of pictures each."""

    schemes: tuple[str, ...] = ("https", "http")
    seconds: float = 15.0
    redirects: int = 3
    allow_private: bool = False
    held_bytes: int = 512 << 20


Take = Callable[[int], None]


class Room:
    """What is fetched for all requests at a time, in bytes. What comes past it is refused, to be tried again: to wait for
    room would mean to wait for another's slow server or long film."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    @contextmanager
    def share(self, what: str) -> Iterator[Take]:
        """One medium's part of it, taken as it arrives and given back at the end. ``what`` names the item in the error."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self.held + size > self.limit:
                message = f"{what}: this server holds as much of fetched media as it may, {self.limit >> 20} MiB; try again"
                raise StageFailed("preprocessing", message, code="server_busy", retryable=True)
            mine += size
            self.held += size

        try:
            yield take
        finally:
            self.held -= mine


async def fetch(url: str, policy: UrlPolicy, max_bytes: int, what: str, take: Take = lambda size: None) -> bytes:
    """The bytes behind ``url`` (or in it: ``data:``). ``what`` names the item in errors. Raises Refused, and what ``take``
    raises when it is told of a piece that has come."""
    if url[:5].lower() == "data:":
        return _inline(url, max_bytes, what)
    try:
        async with asyncio.timeout(policy.seconds):
            return await _follow(url, policy, max_bytes, what, take)
    except TimeoutError:
        raise _refused(what, f"did not arrive within {policy.seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: a host that no name can be
        raise _refused(what, f"could not be fetched ({type(error).__name__})") from None


async def _follow(url: str, policy: UrlPolicy, max_bytes: int, what: str, take: Take) -> bytes:
    target = httpx.URL(url)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=_trust()) as client:
        for _ in range(policy.redirects + 1):
            address = await _checked(target, policy, what)
            request = client.build_request(
                "GET",
                target.copy_with(host=address),
                headers={"Host": target.netloc.decode("ascii"), "Accept": "*/*", "Accept-Encoding": "identity"},
                extensions={"sni_hostname": target.host},
                timeout=policy.seconds,
            )
            response = await client.send(request, stream=True)
            try:
                if response.is_redirect:
                    target = target.join(response.headers.get("location", ""))
                    continue
                if response.status_code != 200:
                    raise _refused(what, f"its server answered {response.status_code}")
                return await _read(response, max_bytes, what, take)
            finally:
                await response.aclose()
    raise _refused(what, f"redirected more than {policy.redirects} times")


@cache
def _trust() -> ssl.SSLContext:
    """Read once: 40 ms, in which nothing else on the loop gets on."""
    return httpx.create_ssl_context(trust_env=False)


async def _read(response: httpx.Response, max_bytes: int, what: str, take: Take) -> bytes:
    said = response.headers.get("content-length", "")
    if said.isdigit() and int(said) > max_bytes:
        raise _refused(what, f"has {said} bytes; the limit is {max_bytes}")
    data = io.BytesIO()  # gives its bytes away at the end without a copy
    async for piece in response.aiter_raw():  # as sent: what was compressed on the way is no medium, and may be a bomb
        if data.tell() + len(piece) > max_bytes:
            raise _refused(what, f"has more bytes than the limit of {max_bytes}")
        take(len(piece))
        data.write(piece)
    return data.getvalue()


async def _checked(url: httpx.URL, policy: UrlPolicy, what: str) -> str:
    """The address to connect to."""
    if url.scheme not in policy.schemes:
        raise _refused(what, f"{url.scheme or 'no'} URLs are not fetched; allowed: {', '.join(policy.schemes)}, data")
    if not url.host:
        raise _refused(what, "its URL names no host")
    port = url.port or (443 if url.scheme == "https" else 80)
    if port > 65_535:
        raise _refused(what, f"its URL names port {port}, and there is none")
    try:
        ask = partial(socket.getaddrinfo, url.host, port, type=socket.SOCK_STREAM)
        found: list[Any] = await asyncio.get_running_loop().run_in_executor(_lookups, ask)
    except OSError:
        raise _refused(what, "its host does not resolve") from None
    addresses = [str(entry[4][0]) for entry in found]
    # All of them, not the first one: the name must not be half public.
    if not policy.allow_private and not all(map(_public, addresses)):
        raise _refused(what, "its host is a private address, and this server does not fetch from those")
    return addresses[0]


_CARRIES_IPV4 = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96")))
"""Networks whose addresses end in an IPv4 address: compatible (obsolete), mapped, translated (NAT64)."""
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")


def _public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in _CARRIES_IPV4):
            return _public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        if ip in _LOCAL_NAT64 or ip.is_site_local:
            return False
        if ip.sixtofour is not None and not _public(str(ip.sixtofour)):
            return False
    return ip.is_global and not ip.is_multicast


def _inline(url: str, max_bytes: int, what: str) -> bytes:
    header, comma, body = url.partition(",")
    if not comma:
        raise _refused(what, "its data URL has no data")
    if len(body) > max_bytes * 3:
        raise _refused(what, f"has more bytes than the limit of {max_bytes}")
    try:
        raw = unquote_to_bytes(body)
        data = base64.b64decode(raw) if header.lower().endswith(";base64") else raw
    except (binascii.Error, ValueError):
        raise _refused(what, "its data URL is not base64") from None
    if len(data) > max_bytes:
        raise _refused(what, f"has {len(data)} bytes; the limit is {max_bytes}")
    return data


def _refused(what: str, why: str) -> Refused:
    return Refused(f"{what}: {why}", code="invalid_media", param=what)
