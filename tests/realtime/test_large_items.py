"""What a client puts in may be larger than what clients take: the echo of it is cut, and the conversation goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from antiphon.realtime.protocol.fitting import fitting
from tests.realtime import stubs
from tests.realtime.conversing import hush, serving, talking

SEES = msgspec.structs.replace(stubs.INFO, inputs={"chat": ("text", "audio", "image")})
PICTURE = "data:image/png;base64," + "iVBO" * (6 << 18)
CLIENTS_TAKE = 1 << 20
"""Bytes of a frame: the default of the websockets library, which closes the connection at a longer one."""


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "input_image", "image_url": PICTURE}],
        [{"type": "input_text", "text": "a" * (1 << 20)}] * 9,
        [{"type": "input_text", "text": "語" * 1_000}] * 1_000,
    ],
    ids=["picture", "texts", "many texts"],
)
async def test_a_large_item_is_taken_and_told_in_frames_that_every_client_takes(content: list[dict[str, Any]]) -> None:
    """Two echoes of 6 MB at once were taken for a client that does not read, and it was cut off."""
    graph = stubs.StubClient(info=SEES)
    async with serving(graph) as running, talking(running) as talk:
        await talk.until("session.created")
        await talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        item = (await talk.until("conversation.item.done"))["item"]
        assert [part["type"] for part in item["content"]] == [part["type"] for part in content]
        await talk.send("response.create")
        await talk.until("response.done")
        assert max(e["_bytes"] for e in talk.events) < CLIENTS_TAKE
    (asked,) = graph.answers()
    assert len(asked.request.messages[-1].parts) == len(content), "the model gets all of it"


def test_no_id_is_cut() -> None:
    event = {"type": "a", "event_id": "e", "item": {"id": "i" * 512, "content": [{"text": "x" * 5_000}] * 1_000}}
    text = fitting(event, CLIENTS_TAKE)
    assert len(text) < CLIENTS_TAKE and "i" * 512 + '"' in text and "…" in text


async def test_a_client_that_reads_may_ask_for_much_at_once() -> None:
    """Twelve retrieved turns of 11 s were more than what may wait unsent, and a client that read them was cut off."""
    async with serving() as running, talking(running, max_queue=1) as talk:
        await talk.say_hello(audio={"input": {"turn_detection": None}})
        await talk.speak(hush(11.0))
        await talk.send("input_audio_buffer.commit")
        item_id = (await talk.until("input_audio_buffer.committed"))["item_id"]
        for _ in range(30):
            await talk.send("conversation.item.retrieve", item_id=item_id)
        for _ in range(30):
            await talk.until("conversation.item.retrieved", within=20.0)
        assert talk.closed is None


async def test_a_client_that_asks_for_much_and_goes_leaves_nothing_behind() -> None:
    async with serving() as running:
        async with talking(running, max_queue=1) as talk:
            await talk.say_hello(audio={"input": {"turn_detection": None}})
            await talk.speak(hush(11.0))
            await talk.send("input_audio_buffer.commit")
            item_id = (await talk.until("input_audio_buffer.committed"))["item_id"]
            for _ in range(30):
                await talk.send("conversation.item.retrieve", item_id=item_id)
            talk.socket.transport.abort()
        async with asyncio.timeout(10):
            while len(running.doors.sessions):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.05)
