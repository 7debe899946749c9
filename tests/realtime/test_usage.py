"""What an answer is said to have cost."""

from __future__ import annotations

import asyncio

from tests.realtime.conversing import serving, talking
from tests.realtime.stubs import Script, StubClient


async def test_a_cancelled_answer_counts_the_tokens_made_so_far_and_not_the_pieces() -> None:
    script = Script(tokens_a_word=3, token_s=0.1, hold=asyncio.Event())  # which nobody sets: it cannot end by itself
    async with serving(StubClient(script)) as server, talking(server) as talk:
        await talk.say_hello(output_modalities=["text"])
        await talk.ask("What time is it?")
        await talk.until("response.output_text.delta")
        await talk.until("response.output_text.delta")
        await talk.send("response.cancel")
        done = (await talk.until("response.done"))["response"]
        deltas = [e for e in talk.events if e["type"] == "response.output_text.delta"]
    assert done["status"] == "cancelled"
    assert done["usage"]["output_token_details"]["text_tokens"] == 3 * len(deltas)
