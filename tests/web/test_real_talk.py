"""A browser talks with the real CPU voice: a recorded question for a microphone, the answer measured where it sounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clients import serving
from tests.web.browser import loud_spans, microphone, page, say
from tests.web.test_page import TRANSPORTS, live, logged, open_sessions, opened, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PATIENCE_MS = 120_000
STORY = "Tell me a long story about a lighthouse keeper, his dog and a storm, with every detail."
LOUD = "window.heard.filter(([, level]) => level > 0.01).length"


@pytest.fixture(scope="module")
def real() -> Iterator[int]:
    try:
        with serving.server(serving.REAL) as port:
            yield port
    except serving.NotStarted as error:
        pytest.skip(f"the CPU voice does not start here: {error}")


@contextlib.asynccontextmanager
async def talking(port: int, transport: str, recording: Path) -> AsyncIterator[Any]:
    async with page(recording) as p:
        p.set_default_timeout(PATIENCE_MS)
        await opened(p, port, transport=transport)
        await live(p)
        yield p
        await p.click("#hang-up")
        await p.locator("body[data-state=idle]").wait_for()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_question_is_heard_answered_and_interrupted(
    real: int, transport: str, question: np.ndarray, tmp_path: Path
) -> None:
    async with talking(real, transport, microphone(tmp_path, [(1.0, question)], 20.0)) as p:
        first = p.locator(".utterance.user").first
        await until(p, "/dog|cat/i.test(document.querySelector('.utterance.user')?.textContent)", PATIENCE_MS / 1000)
        assert "You" in await first.inner_text()
        await until(p, f"{LOUD} > 20", PATIENCE_MS / 1000)  # the answer to it is heard, however short
        await p.fill("#composer-text", STORY)  # and this one is long enough to be interrupted
        await p.press("#composer-text", "Enter")
        await p.evaluate("window.heard.length = 0")
        await until(p, f"{LOUD} > 40", PATIENCE_MS / 1000)
        await say(p, question)
        await p.locator(".turn-head", has_text="Interrupted").wait_for()
        await p.locator(".utterance.agent").nth(1).locator("s").wait_for()
        assert await p.locator(".utterance.user").count() == 3
        assert bool(await logged(p, "output_audio_buffer.cleared")) == (transport == "webrtc")
        retrieved = (await logged(p, "conversation.item.retrieved"))[-1]["item"]
        row = p.locator(f".utterance[data-item='{retrieved['id']}']")
        kept = await row.evaluate("row => [...row.lastChild.childNodes].find(n => !n.className)?.textContent ?? ''")
        heard = retrieved["content"][0]["transcript"]
        cut = await row.locator("s").inner_text()
        assert kept == heard and cut
        # The sound of that answer is about as long as the server says was heard of it.
        truncated = (await logged(p, "conversation.item.truncated"))[-1]["audio_end_ms"]
        spans = list(loud_spans(await p.evaluate("window.heard"), gap_ms=900))
        assert spans and spans[0][1] - spans[0][0] < truncated + 1_500
        assert await open_sessions(real) == 1
    for _ in range(100):
        if not await open_sessions(real):
            break
        await asyncio.sleep(0.1)
    assert not await open_sessions(real)


async def test_the_model_changes_the_page_when_it_is_told_to(real: int) -> None:
    async with page() as p:
        p.set_default_timeout(PATIENCE_MS)
        await opened(p, real, transport="websocket", tool="on")
        await p.fill("#composer-text", "Make the page blue.")
        await p.press("#composer-text", "Enter")
        await p.locator("html[data-colour=blue]").wait_for()
        await p.locator(".utterance.tool", has_text="set_page_colour").wait_for()
        await p.locator(".utterance.agent").wait_for()  # and says so
        await p.click("#hang-up")
