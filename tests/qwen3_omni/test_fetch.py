"""URLs under the policy: a real server on this machine, which is exactly what a stranger's URL must not reach."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media import fetch as fetching
from antiphon.pipelines.qwen3_omni.media.fetch import UrlPolicy, fetch

HERE = UrlPolicy(allow_private=True, seconds=2.0)
BODY = b"picture" * 100


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, list[str]]]:
    """/ok, /loop (redirects to itself), /away (redirects to a private name), /slow, /gone, /long (no length)."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        asked.append(path)
        if path == "/slow":
            await asyncio.sleep(0.5)
        replies = {
            "/ok": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY,
            "/loop": b"HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n",
            "/once": b"HTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n",
            "/away": b"HTTP/1.1 302 Found\r\nLocation: ftp://x/y\r\nContent-Length: 0\r\n\r\n",
            "/gone": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "/long": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY * 50,
        }
        writer.write(replies.get(path, b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", asked
    finally:
        listening.close()


async def test_fetched_and_redirected() -> None:
    async with server() as (url, asked):
        assert await fetch(f"{url}/ok", HERE, 10_000, "item") == BODY
        assert await fetch(f"{url}/once", HERE, 10_000, "item") == BODY
        assert asked == ["/ok", "/once", "/ok"]


@pytest.mark.parametrize(
    ("path", "limit", "words"),
    [
        ("/ok", 100, "has 700 bytes; the limit is 100"),
        ("/long", 1000, "more bytes than the limit of 1000"),
        ("/loop", 1000, "redirected more than 3 times"),
        ("/away", 1000, "ftp URLs are not fetched"),
        ("/gone", 1000, "answered 404"),
    ],
)
async def test_refused_by_name(path: str, limit: int, words: str) -> None:
    async with server() as (url, _):
        with pytest.raises(Refused, match=f"item: .*{words}"):
            await fetch(f"{url}{path}", HERE, limit, "item")


async def test_certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bool] = []
    create = ssl.create_default_context

    def reading(*given: Any, **named: Any) -> Any:
        read.append(True)
        return create(*given, **named)

    monkeypatch.setattr(ssl, "create_default_context", reading)
    fetching._trust.cache_clear()
    async with server() as (url, asked):
        for _ in range(3):
            assert await fetch(f"{url}/ok", HERE, 10_000, "item") == BODY
    assert len(read) == 1 and len(asked) == 3


async def test_time_is_for_the_whole() -> None:
    async with server() as (url, _):
        with pytest.raises(Refused, match=r"did not arrive within 0\.2 s"):
            await fetch(f"{url}/slow", UrlPolicy(allow_private=True, seconds=0.2), 1000, "item")


async def test_private_addresses_are_never_asked() -> None:
    async with server() as (url, asked):
        with pytest.raises(Refused, match="private address"):
            await fetch(f"{url}/ok", UrlPolicy(), 10_000, "item")
        assert asked == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "fc00::1",
     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "224.0.0.1", "100.64.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
     "64:ff9b:1::808:808", "2002:7f00:1::", "fec0::1", "fe80::1%eth0", "255.255.255.255"],
)  # fmt: skip
async def test_what_is_private(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolves(host: str, port: int, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", ("93.184.216.34", port)), (0, 0, 0, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    with pytest.raises(Refused, match="private address"):
        await fetch("http://example.org/a", UrlPolicy(), 1000, "item")


async def test_the_checked_address_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name resolves to this machine when it is checked, and is not asked for again."""
    async with server() as (url, asked):
        port = int(url.rsplit(":", 1)[1])
        looked: list[str] = []

        async def checked(target: Any, policy: UrlPolicy, what: str) -> str:
            looked.append(target.host)
            return "127.0.0.1"

        monkeypatch.setattr(fetching, "_checked", checked)
        assert await fetch(f"http://does-not-resolve.invalid:{port}/ok", HERE, 10_000, "item") == BODY
        assert looked == ["does-not-resolve.invalid"] and asked == ["/ok"]


async def test_names_that_nobody_answers_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    over, real = threading.Event(), socket.getaddrinfo

    def lookup(host: str, *given: Any, **named: Any) -> Any:
        if host.endswith(".slow"):
            over.wait(60)
            raise OSError
        return real(host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    patient = UrlPolicy(allow_private=True, seconds=60.0)
    async with server() as (url, _):
        slow = [asyncio.ensure_future(fetch(f"http://n{n}.slow/", patient, 1000, "item")) for n in range(40)]
        try:
            assert await asyncio.wait_for(fetch(f"{url}/ok", patient, 10_000, "item"), 60) == BODY
            assert not any(lookup.done() for lookup in slow)
        finally:
            over.set()
        for result in await asyncio.gather(*slow, return_exceptions=True):
            assert isinstance(result, Refused)


async def test_data_urls() -> None:
    inline = "data:image/png;base64," + base64.b64encode(BODY).decode()
    assert await fetch(inline, UrlPolicy(), 10_000, "item") == BODY
    assert await fetch("data:,a%20b", UrlPolicy(), 10_000, "item") == b"a b"
    for url, words in (("data:nothing", "no data"), ("data:x;base64,ab$", "not base64"), (inline, "the limit of 10")):
        with pytest.raises(Refused, match=words):
            await fetch(url, UrlPolicy(), 10 if url == inline else 1000, "item")


async def test_what_is_compressed_on_the_way_is_not_unpacked() -> None:
    """Nobody asked for it, and a few bytes may hold gigabytes."""
    bomb = gzip.compress(b"A" * (8 << 20))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"accept-encoding: identity" in head.lower()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as running:
        url = f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/"
        assert await fetch(url, HERE, len(bomb), "item") == bomb


async def test_odd_urls() -> None:
    for url in ("", "http://", "//x", "http://[", "javascript:1", f"http://{'a' * 300}.com/", "http://a..b/"):
        with pytest.raises(Refused, match="item"):
            await fetch(url, UrlPolicy(), 1000, "item")
