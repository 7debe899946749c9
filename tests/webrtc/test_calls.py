"""Calls as aiortc's own client makes them, against the whole server on a stub graph."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import numpy as np
import pytest
from aioice import ice
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from antiphon.realtime import holdings
from antiphon.realtime.limits import Limits
from antiphon.realtime.settings import Settings
from antiphon.session.features import Features
from tests.realtime.rest.conftest import until
from tests.realtime.stubs import Script, StubClient
from tests.webrtc.calling import Caller, Running, calling, loud_seconds, serving, settled, voice

STARTED, STOPPED, CLEARED = (f"output_audio_buffer.{end}" for end in ("started", "stopped", "cleared"))


async def test_a_spoken_turn_over_the_tracks() -> None:
    async with serving(StubClient(Script(audio_s=1.2))) as running, calling(running) as caller:
        caller.send("session.update", session={"type": "realtime", "audio": {"input": {"transcription": {"model": "w"}}}})
        session = (await caller.until("session.updated"))["session"]
        assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
        caller.microphone.say(voice(0.8))
        started = await caller.until("input_audio_buffer.speech_started")
        stopped = await caller.until("input_audio_buffer.speech_stopped")
        spoken = stopped["audio_end_ms"] - started["audio_start_ms"]
        assert 900 < spoken < 1900  # 300 ms before, 800 of voice, at least 500 of silence
        done = await caller.until("response.done")
        assert done["response"]["status"] == "completed"
        assert (await caller.until(STOPPED))["response_id"] == done["response"]["id"]
        types = caller.types()
        assert "response.output_audio.delta" not in types
        assert "response.output_audio.done" in types and "response.output_audio_transcript.delta" in types
        assert types.index("response.content_part.added") < types.index(STARTED) < types.index("response.done")
        assert types.index("response.done") < types.index(STOPPED)
        await caller.hears(0.5)  # what the caller's own jitter buffer still holds
        assert 1.0 < loud_seconds(caller.heard) < 1.3
        [work] = [w for w in running.client.answers() if w.request.messages[-1].role == "user"]
        heard = np.frombuffer(work.request.messages[-1].parts[0].data, "<f4")  # type: ignore[union-attr]
        assert loud_seconds(np.repeat(heard, 3)) == pytest.approx(0.8, abs=0.1)


async def test_an_interruption_ends_the_sound_and_the_item_says_what_was_heard() -> None:
    script = Script(audio_s=8.0, words=("one", " two", " three", " four", " five", " six", " seven"))
    async with serving(StubClient(script)) as running, calling(running) as caller:
        caller.ask("count")
        response = (await caller.until(STARTED))["response_id"]
        await asyncio.sleep(1.0)
        caller.microphone.say(voice(0.5))
        await caller.until("input_audio_buffer.speech_started")
        assert (await caller.until(CLEARED))["response_id"] == response
        cut = await caller.until("conversation.item.truncated")
        await caller.hears(0.6)
        # What sounded is what is said to have been heard: a fade of 5 ms and the caller's own windows aside.
        assert loud_seconds(caller.heard) * 1000 == pytest.approx(cut["audio_end_ms"], abs=40)
        caller.send("conversation.item.retrieve", item_id=cut["item_id"])
        [part] = (await caller.until("conversation.item.retrieved"))["item"]["content"]
        assert "one" in part["transcript"] and "seven" not in part["transcript"] and "audio" not in part


async def test_clear_empties_the_queue_and_an_empty_one_is_no_fault() -> None:
    async with serving(StubClient(Script(audio_s=8.0))) as running, calling(running) as caller:
        caller.send("output_audio_buffer.clear")
        caller.ask("speak")
        await caller.until(STARTED)
        caller.send("output_audio_buffer.clear")
        await caller.until(CLEARED)
        await caller.hears(0.4)
        quiet = len(caller.heard)
        await caller.hears(0.3)
        assert loud_seconds(caller.heard[quiet:]) == 0.0


async def test_hang_up_from_either_side_leaves_nothing() -> None:
    async with serving() as running:
        async with calling(running) as caller:
            assert running.calls == 1 and running.doors.state.admission.open == 1
            answer = await running.http.post(f"{caller.location}/hangup")
            assert answer.status_code == 200 and answer.content == b""
            await settled(running)
            again = await running.http.post(f"{caller.location}/hangup")
            assert again.status_code == 404 and again.json()["error"]["code"] == "call_not_found"
        async with calling(running):
            pass  # the caller closes its connection
        await settled(running)
        assert running.doors.state.admission.open == 0


async def test_a_caller_that_vanishes_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ice, "CONSENT_INTERVAL", 0.2)  # 30 s in all as it is; RFC 7675
    async with serving() as running:
        caller = Caller(running)
        await caller.accept(await caller.post())
        transport = caller.pc.getTransceivers()[0].receiver.transport.transport
        for protocol in transport.iceGatherer._connection._protocols:
            protocol.transport.abort()  # its sockets are gone, nothing is said
        await settled(running, within=15)
        assert running.doors.state.admission.open == 0
        assert running.client.forgotten  # the pipeline's caches too
        await caller.close()


async def test_a_caller_that_never_comes_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.realtime.webrtc.peer.CONNECT_S", 0.3)
    async with serving() as running:
        caller = Caller(running)
        assert (await caller.post()).status_code == 201  # and its answer is thrown away: UDP is blocked, say
        assert running.calls == 1
        await settled(running)
        assert 'ending="not_connected"' in (await running.http.get("/metrics")).text
        await caller.close()


async def test_a_key_carries_a_session_and_expires() -> None:
    async with serving(settings=Settings(api_keys=("secret",))) as running:
        secret = {"Authorization": "Bearer secret"}
        body = {"session": {"type": "realtime", "instructions": "Speak like a pirate."}}
        minted = (await running.http.post("/v1/realtime/client_secrets", json=body, headers=secret)).json()["value"]
        caller = Caller(running)
        try:
            await caller.accept(await caller.post(Authorization=f"Bearer {minted}"))
            created = await caller.until("session.created")
            assert created["session"]["instructions"] == "Speak like a pirate."
            other = {"Authorization": "Bearer other"}
            assert (await running.http.post(f"{caller.location}/hangup", headers=other)).status_code == 401
            assert (await running.http.post(f"{caller.location}/hangup", headers=secret)).status_code == 200
        finally:
            await caller.close()
        for wrong in ("ek_gone", "nobody"):
            refused = await running.http.post("/v1/realtime/calls", content="v=0", headers={"Authorization": f"Bearer {wrong}"})
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        await settled(running)


async def test_multipart_brings_a_session() -> None:
    async with serving() as running:
        caller = Caller(running)
        session = json.dumps({"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"speed": 1.2}}})
        parts: Any = {
            "sdp": (None, await caller.offer(), "application/sdp"),
            "session": (None, session, "application/json"),
        }
        await caller.accept(await running.http.post("/v1/realtime/calls", files=parts))
        created = (await caller.until("session.created"))["session"]
        assert created["instructions"] == "Be brief." and created["audio"]["output"]["speed"] == 1.2
        await caller.close()
        await settled(running)


async def test_the_betas_address_speaks_beta() -> None:
    async with serving() as running:
        caller = Caller(running)
        await caller.accept(await caller.post("/v1/realtime?model=stub"))
        created = (await caller.until("session.created"))["session"]
        assert created["input_audio_format"] == "pcm16" and "type" not in created
        caller.ask("hello")
        await caller.until("response.audio_transcript.delta")
        await caller.until("response.done")
        await caller.close()
        await settled(running)


async def test_a_side_channel_hears_and_speaks_for_the_call() -> None:
    async with serving() as running, calling(running) as caller:
        async with connect(f"{running.ws}?call_id={caller.id}") as side:
            first = json.loads(await side.recv())
            assert first["type"] == "session.created"
            update = {"type": "session.update", "session": {"type": "realtime", "instructions": "From the side."}}
            await side.send(json.dumps(update))
            assert (await caller.until("session.updated"))["session"]["instructions"] == "From the side."
            assert json.loads(await side.recv())["session"]["instructions"] == "From the side."
            await side.send("no json")
            assert json.loads(await side.recv())["error"]["code"] == "invalid_json"
            caller.ask("hello")
            async with asyncio.timeout(10):
                while (event := json.loads(await side.recv()))["type"] != "response.done":
                    assert "output_audio.delta" not in event["type"]
        assert running.calls == 1  # leaving it ends nothing
        async with connect(f"{running.ws}?call_id={caller.id}") as side:
            await running.http.post(f"{caller.location}/hangup")
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(10):
                    while True:
                        await side.recv()
            assert side.close_code == 1001
        async with connect(f"{running.ws}?call_id=rtc_unknown") as nowhere:
            assert json.loads(await nowhere.recv())["error"]["code"] == "call_not_found"
        assert "call_not_found" not in caller.types()


async def test_a_call_cannot_be_filled_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By neither way in: they fill the same conversation."""
    monkeypatch.setattr(holdings.Holdings.__init__, "__defaults__", (100_000,))
    content = [{"type": "input_text", "text": "x" * 40_000}]

    def create(name: str) -> dict[str, Any]:
        return {"item": {"id": name, "type": "message", "role": "user", "content": content}, "event_id": name}

    kind = "conversation.item.create"

    async with serving() as running, calling(running) as caller, connect(f"{running.ws}?call_id={caller.id}") as side:
        caller.send(kind, **create("a"))
        await caller.until("conversation.item.done")
        await side.send(json.dumps({"type": kind, **create("b")}))
        await caller.until("conversation.item.done")
        await side.send(json.dumps({"type": kind, **create("c")}))
        async with asyncio.timeout(10):
            while (event := json.loads(await side.recv()))["type"] != "error":
                pass
        assert (event["error"]["code"], event["error"]["event_id"]) == ("conversation_too_large", "c")
        caller.send(kind, **create("c"))
        error = (await caller.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_too_large", "c")
        caller.send("conversation.item.delete", item_id="a")
        await caller.until("conversation.item.deleted")
        caller.send(kind, **create("c"))
        await caller.until("conversation.item.done")


async def test_a_call_without_a_microphone_reads_and_listens() -> None:
    async with serving() as running, calling(running, listen_only=True) as caller:
        caller.ask("hello")
        await caller.until(STOPPED)
        await caller.hears(0.4)
        assert loud_seconds(caller.heard) == pytest.approx(1.0, abs=0.1)


BAD_MESSAGES: list[tuple[Any, str]] = [
    ("no json", "invalid_json"),
    (b"\x00\xff\x80", "invalid_json"),
    ("[]", "invalid_event"),
    ('{"type": "no.such.event"}', "invalid_value"),
    ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', "invalid_value"),
    ('{"type": "conversation.item.create", "item": ' + "[" * 60_000, "invalid_json"),
    ('{"type": "x' + "y" * 60_000 + '"}', "invalid_value"),
]


async def test_bad_messages_get_an_error_and_the_call_goes_on() -> None:
    async with serving() as running, calling(running) as caller:
        for message, code in BAD_MESSAGES:
            caller.channel.send(message)
            assert (await caller.until("error"))["error"]["code"] == code, message[:60]
        caller.send("session.update", session={"type": "realtime"})
        await caller.until("session.updated")


async def test_a_channel_of_another_name_is_told_so() -> None:
    async with serving() as running, calling(running, label="events") as caller:
        error = (await caller.until("error"))["error"]
        assert "oai-events" in error["message"] and error["param"] == "label"
    await settled(running)


async def test_an_event_too_long_for_a_message_is_shortened_and_closes_nothing() -> None:
    async with serving() as running, calling(running) as caller:
        long = "words " * 9_000  # 54 kB: fits on its way in, not beside all else on its way back
        caller.send("session.update", session={"type": "realtime", "instructions": long, "tools": []})
        caller.ask(long)
        updated = await caller.until("session.updated")
        assert all(event["_bytes"] <= 65_536 for event in caller.events)
        assert updated["session"]["instructions"] == long
        await caller.until("response.done")
        tools = [{"type": "function", "name": f"tool_{n}", "description": "d" * 900, "parameters": {}} for n in range(50)]
        caller.send("session.update", session={"type": "realtime", "tools": tools})
        updated = await caller.until("session.updated")
        assert updated["session"]["instructions"].endswith("…") and len(updated["session"]["tools"]) == 50


async def test_a_full_server_says_so() -> None:
    async with serving(settings=Settings(limits=Limits(sessions=1))) as running, calling(running):
        second = Caller(running)
        refused = await second.post()
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "server_busy"
        assert int(refused.headers["retry-after"]) >= 1
        await second.close()


async def test_loss_and_jitter_do_not_break_a_turn() -> None:
    """5 % lost, each packet late by up to 100 ms."""
    drawn = random.Random(5)
    features = Features(early=False)
    async with serving(StubClient(Script(audio_s=0.4)), features=features) as running, calling(running) as caller:
        transport = caller.pc.getSenders()[0].transport
        send, loop = transport._send_rtp, asyncio.get_running_loop()

        async def lossy(data: bytes) -> None:
            if drawn.random() > 0.05:
                loop.call_later(drawn.random() * 0.1, lambda: asyncio.ensure_future(send(data)))

        transport._send_rtp = lossy
        caller.microphone.say(voice(1.0))
        await caller.until("response.done")
        started = [e for e in caller.events if e["type"] == "input_audio_buffer.speech_started"]
        assert len(started) == 1
        work = running.client.answers()[-1]
        heard = np.frombuffer(work.request.messages[-1].parts[0].data, "<f4")  # type: ignore[union-attr]
        assert loud_seconds(np.repeat(heard, 3)) == pytest.approx(1.0, abs=0.15)
        caller.microphone.stop()
        await asyncio.sleep(0.15)


async def test_ports_and_a_public_address() -> None:
    settings = Settings(udp_ports="43200-43203", public_address="203.0.113.7")
    async with serving(settings=settings) as running:
        caller = Caller(running)
        answer = await caller.post()
        candidates = [line.split() for line in answer.text.splitlines() if line.startswith("a=candidate")]
        hosts = {int(c[5]) for c in candidates if c[7] == "host"}
        assert hosts and all(43200 <= port <= 43203 for port in hosts)
        mapped = {int(c[5]) for c in candidates if c[4] == "203.0.113.7"}
        assert mapped and mapped <= hosts
        await caller.accept(answer)
        await caller.until("session.created")
        await caller.close()
        await settled(running)


async def test_a_server_that_ends_tells_its_callers() -> None:
    async with serving() as running, calling(running) as caller:
        async with connect(f"{running.ws}?call_id={caller.id}") as side:
            await side.recv()
            await running.doors.drain()
            await settled(running)
            with pytest.raises(ConnectionClosed):
                while True:
                    await side.recv()
        refused = await running.http.post("/v1/realtime/calls", content="v=0", headers={"Content-Type": "application/sdp"})
        assert refused.status_code in (400, 503)
        assert 'ending="closed_1001",transport="webrtc"' in (await running.http.get("/metrics")).text


async def calls_made(running: Running, count: int) -> None:
    for _ in range(count):
        async with calling(running) as caller:
            caller.ask("hello")
            await caller.until(STARTED)
    await settled(running)


async def leaves_nothing(count: int) -> None:
    """Sockets, tasks and places; threads are watched by the suite itself."""
    from tests.realtime.conversing import open_descriptors

    async with serving(StubClient(Script(audio_s=3.0))) as running:
        await calls_made(running, 2)
        await asyncio.sleep(0.2)
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        await calls_made(running, count)
        await until(lambda: open_descriptors() <= descriptors + 2 and len(asyncio.all_tasks()) <= tasks + 2)
        assert running.doors.state.admission.open == 0 and not running.client.open


async def test_calls_made_and_hung_up_leave_nothing() -> None:
    await leaves_nothing(20)


@pytest.mark.slow
async def test_a_hundred_calls_leave_nothing() -> None:
    await leaves_nothing(100)
