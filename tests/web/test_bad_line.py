"""A browser's call over a line that loses, delays and reorders its datagrams, or lets none through."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.web.browser import loud_spans, page, say
from tests.web.test_page import live, logged, open_sessions, opened, until, voice
from tests.webrtc.line import Line, line

pytestmark = pytest.mark.real

LOUD = "window.heard.filter(([, level]) => level > 0.05).length"


async def over(p: Any, way: Line) -> None:
    """Have the page's calls go this way."""

    async def call(route: Any) -> None:
        answer = await route.fetch(post_data=way.hidden(route.request.post_data))
        body = await answer.text()
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        body = await way.through(body) if answer.status == 201 else body
        await route.fulfill(status=answer.status, headers=headers, body=body)

    await p.route(re.compile(r"/v1/realtime/calls\?"), call)


async def test_a_turn_and_an_interruption_through_loss_and_jitter(stub: int) -> None:
    async with line(loss=0.02, jitter_s=0.06) as way, page() as p:
        await over(p, way)
        await opened(p, stub, transport="webrtc")
        await live(p)
        assert not await p.inner_text("#notices")
        await say(p, voice(1.0))
        await p.locator(".utterance.user", has_text="Do you like dogs or cats?").wait_for()
        await until(p, f"{LOUD} > 60")
        await say(p, voice(0.6))
        await p.locator(".utterance.agent s").first.wait_for()
        assert len(await logged(p, "input_audio_buffer.speech_started")) == 2
        assert await logged(p, "output_audio_buffer.cleared")
        assert list(loud_spans(await p.evaluate("window.heard"))) and not p.problems
        assert way.lost > 2 and way.overtaken > 20
        await p.click("#hang-up")
        await p.locator("body[data-state=idle]").wait_for()


async def test_udp_that_is_blocked_is_said_and_the_talk_goes_on_over_a_websocket(stub: int) -> None:
    async with line() as way, page() as p:
        way.weather.blocked = True
        await over(p, way)
        await opened(p, stub, transport="webrtc")
        await live(p)
        assert "WebRTC did not get through" in await p.inner_text("#notices")
        await say(p, voice(0.8))
        await p.locator(".utterance.user", has_text="Do you like dogs or cats?").wait_for()
        await until(p, f"{LOUD} > 20")
        assert way.lost > 3 and way.passed == 0
        assert await open_sessions(stub) == 1  # the call that never came about has been hung up
        await p.click("#hang-up")
        await p.locator("body[data-state=idle]").wait_for()


@pytest.mark.slow
async def test_a_line_that_breaks_in_the_middle_is_mended(stub: int) -> None:
    """The browser gives up on the call after a while, and makes another with what was said before."""
    async with line() as way, page() as p:
        await over(p, way)
        await opened(p, stub, transport="webrtc")
        await live(p)
        await p.fill("#composer-text", "Remember me")
        await p.press("#composer-text", "Enter")
        await p.locator(".turn-head").wait_for(timeout=30_000)
        await p.unroute(re.compile(r"/v1/realtime/calls\?"))
        way.weather.blocked = True
        await p.locator(".notice", has_text="The connection was lost").wait_for(timeout=60_000)
        await p.locator("body[data-state=live]").wait_for(timeout=30_000)
        past = [e for e in await logged(p, "conversation.item.create") if e["item"].get("id", "").startswith("past_")]
        assert past[0]["item"]["content"][0]["text"] == "Remember me"
        await asyncio.sleep(0.5)
        assert await open_sessions(stub) >= 1
