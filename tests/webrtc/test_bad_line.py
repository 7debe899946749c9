"""Calls over a line that loses, delays and reorders what is sent, or lets nothing through: real datagrams, a real server."""

from __future__ import annotations

import asyncio

import pytest
from aioice import ice
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.realtime.stubs import Script, StubClient
from tests.webrtc.calling import Caller, calling, loud_seconds, serving, settled, voice
from tests.webrtc.line import line

BAD = {"loss": 0.02, "jitter_s": 0.06}


async def test_turns_are_kept_through_loss_and_jitter() -> None:
    """2 % lost, up to 60 ms late, so that many are overtaken: a turn, then one that is interrupted."""
    script = Script(asr_s=0.05, first_token_s=0.06, token_s=0.01, first_audio_s=0.08, audio_s=2.0, realtime_factor=0.2)
    async with serving(StubClient(script)) as running, line(**BAD) as way, calling(running, line=way) as caller:
        caller.microphone.say(voice(1.0))
        started = await caller.until("input_audio_buffer.speech_started")
        stopped = await caller.until("input_audio_buffer.speech_stopped")
        spoken = stopped["audio_end_ms"] - started["audio_start_ms"]
        assert 1_600 < spoken < 2_000  # 300 ms before, 1 s of voice, 500 of silence after it
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        await caller.until("output_audio_buffer.stopped")
        await caller.hears(0.6)  # what the line and the caller's jitter buffer of 16 packets still hold
        assert caller.types().count("input_audio_buffer.speech_started") == 1
        # 2 s, less what was lost, and what the caller's jitter buffer, full behind a loss, drops for each that is overtaken.
        assert 1.2 < loud_seconds(caller.heard) < 2.2
        caller.microphone.say(voice(0.6))
        await caller.until("output_audio_buffer.started")
        await asyncio.sleep(0.8)
        caller.microphone.say(voice(0.6))
        await caller.until("output_audio_buffer.cleared")
        cut = await caller.until("conversation.item.truncated")
        assert 500 < cut["audio_end_ms"] < 2_500
        assert way.lost > 5 and way.overtaken > 20
        assert way.lost / (way.lost + way.passed) == pytest.approx(0.02, abs=0.012)


async def test_blocked_udp_is_said_and_the_place_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.realtime.webrtc.peer.CONNECT_S", 1.0)
    async with serving() as running, line() as way:
        way.weather.blocked = True
        caller = Caller(running, line=way)
        answer = await caller.post()
        call_id = answer.headers["location"].rsplit("/", 1)[-1]
        async with connect(f"{running.ws}?call_id={call_id}") as side:
            taking = asyncio.create_task(caller.accept(answer))
            told = []
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(30):
                    while True:
                        told.append(await side.recv())
        assert '"code":"not_connected"' in told[-1] and "UDP" in told[-1]
        await settled(running)
        assert running.doors.state.admission.open == 0
        assert 'ending="not_connected"' in (await running.http.get("/metrics")).text
        assert way.lost and way.passed == 0  # the caller did try
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await caller.close()


async def test_a_line_that_breaks_in_the_middle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ice, "CONSENT_INTERVAL", 0.2)  # both ends; 30 s in all as it is; RFC 7675
    async with serving() as running, line(jitter_s=0.02) as way:
        caller = Caller(running, line=way)
        await caller.accept(await caller.post())
        await caller.until("session.created")
        way.weather.blocked = True
        await settled(running, within=15)
        assert running.doors.state.admission.open == 0 and not running.client.open
        await caller.close()


async def test_a_short_break_is_ridden_out() -> None:
    async with serving() as running, line() as way:
        caller = Caller(running, line=way)
        await caller.accept(await caller.post())
        await caller.until("session.created")
        way.weather.blocked = True
        await asyncio.sleep(1.0)
        way.weather.blocked = False
        caller.microphone.say(voice(0.8))
        await caller.until("input_audio_buffer.speech_stopped")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        assert caller.types().count("input_audio_buffer.speech_started") == 1
        await caller.close()
        await settled(running)
