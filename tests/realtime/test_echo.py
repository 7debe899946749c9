"""How long the ears take faint speech for the agent's own voice: while it plays, and a moment after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.realtime.shell.runner import ECHO_TAIL_S
from antiphon.session.events import IN_RATE, SpeechScored
from tests.realtime.conversing import serving, talking, voice
from tests.realtime.stubs import Script, StubClient, StubEar

EXPECTED: list[int] = []


class EchoStubEar(StubEar):
    """Notes every expectation, in samples."""

    def expect_echo(self, samples: int) -> None:
        EXPECTED.append(samples)


def opened(on_score: Callable[[SpeechScored], None]) -> StubEar:
    EXPECTED.clear()
    return EchoStubEar(on_score)


@pytest.mark.parametrize("interrupting", [True, False])
async def test_a_user_who_speaks_over_the_end_of_an_answer_is_heard_whole(interrupting: bool) -> None:
    """The answer is done and three seconds of it wait to be heard: from speech_started on its client plays none of them."""
    detection: dict[str, Any] = {"type": "server_vad", "interrupt_response": interrupting}
    client = StubClient(Script(audio_s=3.0))
    async with serving(client, open_ear=opened) as server, talking(server) as talk:
        await talk.say_hello(audio={"input": {"turn_detection": detection}})
        await talk.ask("What time is it?")
        await talk.until("response.done")
        assert EXPECTED[-1] > 2.5 * IN_RATE
        await talk.speak(voice(0.3))
        await talk.until("input_audio_buffer.speech_started")
    assert (EXPECTED[-1] == ECHO_TAIL_S * IN_RATE) is interrupting


async def test_nothing_is_taken_for_an_echo_where_nothing_sounded() -> None:
    client = StubClient(Script(first_token_s=5.0))
    async with serving(client, open_ear=opened) as server, talking(server) as talk:
        await talk.say_hello(audio={"input": {"turn_detection": {"type": "server_vad"}}})
        await talk.ask("What time is it?")
        await talk.until("response.created")
        await talk.speak(voice(0.3))
        await talk.until("response.done")
    assert EXPECTED == []
