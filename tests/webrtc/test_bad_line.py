"""Calls over a line that loses, delays and reorders what is sent, or lets nothing through: real datagrams, a real server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from aioice import ice
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.clients import serving as processes
from tests.webrtc.calling import Caller, Running, loud_seconds, serving, settled, voice
from tests.webrtc.line import Line, line

BAD = {"loss": 0.02, "jitter_s": 0.06}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server in a process of its own: the real doors, ears and answers by script."""
    with processes.server([sys.executable, "-m", "tests.webrtc.stub_server", "0"]) as started:
        yield started


@asynccontextmanager
async def calling(port: int, way: Line) -> AsyncIterator[Caller]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
        caller = Caller(Running(port, None, None, http), line=way)  # type: ignore[arg-type]
        try:
            await caller.accept(await caller.post())
            await caller.until("session.created")
            yield caller
        finally:
            await http.post(f"{caller.location}/hangup")
            await caller.close()


async def test_turns_are_kept_through_loss_and_jitter(port: int) -> None:
    """2 % lost, up to 60 ms late, so that many are overtaken: a turn, then one that is interrupted."""
    async with line(**BAD) as way, calling(port, way) as caller:
        caller.microphone.say(voice(1.0))
        started = await caller.until("input_audio_buffer.speech_started")
        stopped = await caller.until("input_audio_buffer.speech_stopped")
        spoken = stopped["audio_end_ms"] - started["audio_start_ms"]
        assert 1_600 < spoken < 2_000  # 300 ms before, 1 s of voice, 500 of silence after it
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        await caller.until("output_audio_buffer.stopped")
        await asyncio.sleep(0.4)  # what the line and the caller's jitter buffer still hold
        assert caller.types().count("input_audio_buffer.speech_started") == 1
        assert 1.7 < loud_seconds(caller.heard) < 2.2  # 2 s, less what was lost, and the decoder's own filling in
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
                async with asyncio.timeout(5):
                    while True:
                        told.append(await side.recv())
        assert '"code":"not_connected"' in told[-1] and "UDP" in told[-1]
        await settled(running, within=2)
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
