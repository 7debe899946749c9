"""The addresses that users send: what no connection can be made to, and what no log may hold."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media.fetch import UrlPolicy, fetch
from tests.qwen3_omni.test_fetch import BODY, HERE, server


@pytest.mark.parametrize("policy", [HERE, UrlPolicy()])
async def test_a_port_that_is_none(policy: UrlPolicy) -> None:
    with pytest.raises(Refused, match="item: its URL names port 99999"):
        await fetch("http://127.0.0.1:99999/", policy, 1000, "item")


async def test_addresses_reach_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """They may hold names, keys, signatures."""
    caplog.set_level(logging.DEBUG)
    async with server() as (url, asked):
        assert await fetch(url.replace("//", "//somebody:password@") + "/ok", HERE, 10_000, "item") == BODY
        with pytest.raises(Refused):
            await fetch(f"{url}/gone?signature=secret", HERE, 10_000, "item")
        assert asked == ["/ok", "/gone?signature=secret"]
    for private in ("password", "secret", url):
        assert private not in caplog.text


async def test_names_that_nobody_answers_for_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than the loop has threads for everything: a thread is to be had at once."""
    released = threading.Event()

    def never(*_: Any, **__: Any) -> list[Any]:
        released.wait(20)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        policy = UrlPolicy(seconds=0.2)
        asked = [fetch(f"http://slow{n}.example/", policy, 1000, "item") for n in range(40)]
        for refusal in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(refusal, Refused)
            assert "did not arrive within 0.2 s" in str(refusal)
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(lambda: "decoded") == "decoded"
    finally:
        released.set()
