"""The addresses that users send: what no connection can be made to, and what no log may hold."""

from __future__ import annotations

import logging

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
