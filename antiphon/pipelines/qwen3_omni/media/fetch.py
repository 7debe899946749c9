"""Media by URL, under a policy: schemes, bytes, time, redirects, and no address that is not public unless allowed.

The address that was checked is the address that is connected to: a name that resolves to something else a moment later
(DNS rebinding) gains nothing. Redirects are followed by hand, each under the same checks. Proxies of the environment are
not used.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx

from antiphon.pipelines.errors import Refused

for _talker in ("httpx", "httpcore"):
    # They log every address, with the keys and names in it: those are the user's, and no log's.
    logging.getLogger(_talker).setLevel(logging.WARNING)


_lookups = ThreadPoolExecutor(8)
"""Names are looked up in threads of their own: a name whose server never answers keeps one for half a minute, and the threads
that decode media must not be among those."""


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """``allow_private``: also addresses of this machine and its networks. ``seconds``: for the whole fetch."""

    schemes: tuple[str, ...] = ("https", "http")
    seconds: float = 15.0
    redirects: int = 3
    allow_private: bool = False


async def fetch(url: str, policy: UrlPolicy, max_bytes: int, what: str) -> bytes:
    """The bytes behind ``url`` (or in it: ``data:``). ``what`` names the item in errors. Raises Refused."""
    if url[:5].lower() == "data:":
        return _inline(url, max_bytes, what)
    try:
        async with asyncio.timeout(policy.seconds):
            return await _follow(url, policy, max_bytes, what)
    except TimeoutError:
        raise _refused(what, f"did not arrive within {policy.seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: a host that no name can be
        raise _refused(what, f"could not be fetched ({type(error).__name__})") from None


async def _follow(url: str, policy: UrlPolicy, max_bytes: int, what: str) -> bytes:
    target = httpx.URL(url)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
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
                return await _read(response, max_bytes, what)
            finally:
                await response.aclose()
    raise _refused(what, f"redirected more than {policy.redirects} times")


async def _read(response: httpx.Response, max_bytes: int, what: str) -> bytes:
    said = response.headers.get("content-length", "")
    if said.isdigit() and int(said) > max_bytes:
        raise _refused(what, f"has {said} bytes; the limit is {max_bytes}")
    data = bytearray()
    async for piece in response.aiter_raw():  # as sent: what was compressed on the way is no medium, and may be a bomb
        data += piece
        if len(data) > max_bytes:
            raise _refused(what, f"has more bytes than the limit of {max_bytes}")
    return bytes(data)


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
        data = base64.b64decode(raw) if header.endswith(";base64") else raw
    except (binascii.Error, ValueError):
        raise _refused(what, "its data URL is not base64") from None
    if len(data) > max_bytes:
        raise _refused(what, f"has {len(data)} bytes; the limit is {max_bytes}")
    return data


def _refused(what: str, why: str) -> Refused:
    return Refused(f"{what}: {why}", code="invalid_media", param=what)
