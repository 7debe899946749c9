"""Calls made or used in an unusual way: offers of other shapes, floods, hanging up at odd moments, garbage on the line."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable

import pytest
from aiortc import RTCBundlePolicy
from av import AudioFrame

from antiphon.realtime.settings import Settings
from antiphon.realtime.webrtc.arrivals import STALL_S
from tests.webrtc.calling import Caller, Microphone, Running, calling, serving, settled, voice
from tests.webrtc.line import Line, line


def unbundled(sdp: str) -> str:
    return re.sub(r"^a=group:BUNDLE.*\r\n", "", sdp, flags=re.MULTILINE)


SHAPES: dict[str, Callable[[str], str]] = {
    "no candidates": Line.hidden,
    "line feeds alone": lambda sdp: sdp.replace("\r\n", "\n"),
    "active": lambda sdp: sdp.replace("a=setup:actpass", "a=setup:active"),
    "passive": lambda sdp: sdp.replace("a=setup:actpass", "a=setup:passive"),
    "a first candidate that leads nowhere": lambda sdp: sdp.replace(
        "a=candidate:", "a=candidate:7 1 udp 2130706431 192.0.2.1 9 typ host\r\na=candidate:", 1
    ),
    "tcp candidates": lambda sdp: sdp.replace(
        "a=candidate:", "a=candidate:8 1 tcp 1518280447 192.0.2.1 9 typ host tcptype active\r\na=candidate:", 1
    ),
    "what nobody knows": lambda sdp: sdp.replace("a=mid:0", "a=x-pärchen:\U0001f436 1\r\na=mid:0\r\na=rid:1 send", 1),
    "trickle": lambda sdp: re.sub(r"^a=end-of-candidates\r\n", "", sdp, flags=re.MULTILINE).replace(
        "a=ice-pwd", "a=ice-options:trickle renomination\r\na=ice-pwd"
    ),
}


async def answers(running: Running, caller: Caller) -> None:
    """It is a call like any other."""
    await caller.until("session.created")
    caller.ask("hello")
    assert (await caller.until("response.done"))["response"]["status"] == "completed"


async def test_offers_of_every_shape_are_answered() -> None:
    async with serving() as running:
        for name, shape in SHAPES.items():
            caller = Caller(running)
            offer = await caller.offer()
            changed = shape(offer)
            assert changed != offer, name
            body = {"content": changed.encode(), "headers": {"Content-Type": "application/sdp"}}
            await caller.accept(await running.http.post("/v1/realtime/calls", **body))  # type: ignore[arg-type]
            await answers(running, caller)
            await caller.close()
        await settled(running)


async def test_sections_that_are_not_used_are_declined() -> None:
    async with serving() as running:
        caller = Caller(running)
        caller.pc.addTransceiver("video", direction="recvonly")
        caller.pc.addTransceiver("audio", direction="sendrecv")
        answer = await caller.post()
        directions = [re.search(r"^a=(sendrecv|sendonly|recvonly|inactive)", s, re.M) for s in answer.text.split("m=")[1:]]
        kinds = [s.split(" ")[0] for s in answer.text.split("m=")[1:]]
        told = {(kind, found[1]) for kind, found in zip(kinds, directions, strict=True) if found}
        assert told == {("audio", "sendrecv"), ("video", "inactive"), ("audio", "inactive")}
        await caller.accept(answer)
        await answers(running, caller)
        await caller.close()
        await settled(running)


async def test_an_offer_that_is_not_bundled_stays_within_the_ports() -> None:
    async with serving(settings=Settings(udp_ports="43210-43219")) as running:
        caller = Caller(running, bundle=RTCBundlePolicy.MAX_COMPAT)
        body = unbundled(await caller.offer())
        answer = await running.http.post("/v1/realtime/calls", content=body, headers={"Content-Type": "application/sdp"})
        ports = {int(port) for port in re.findall(r"^a=candidate:\S+ 1 udp \d+ \S+ (\d+) typ host", answer.text, re.M)}
        assert len(ports) >= 2 and all(43210 <= port <= 43219 for port in ports)
        await caller.accept(answer)
        await answers(running, caller)
        await caller.close()
        await settled(running)


async def test_a_second_channel_of_the_same_name_is_told_so() -> None:
    async with serving() as running, calling(running) as caller:
        told: asyncio.Queue[str] = asyncio.Queue()
        second = caller.pc.createDataChannel("oai-events")
        second.on("message", told.put_nowait)
        error = json.loads(await asyncio.wait_for(told.get(), 10))
        assert error["error"]["param"] == "label"
        caller.ask("hello")
        await caller.until("response.done")
        assert told.empty()


async def test_a_flood_of_messages_costs_neither_the_call_nor_another() -> None:
    async with serving() as running, calling(running) as flooding, calling(running) as other:
        for _ in range(1_500):
            flooding.channel.send("no json")
        for _ in range(40):
            flooding.channel.send('{"type": "' + "x" * 60_000 + '"}')
        flooding.send("session.update", session={"type": "realtime"})
        other.ask("hello")
        await other.until("response.done")
        async with asyncio.timeout(60):
            while flooding.types()[-1:] != ["session.updated"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert flooding.types().count("error") == 1_540


async def test_messages_of_every_size_are_taken_whole() -> None:
    """A channel of SCTP closed at 16 KiB for others; what is echoed is cut, what was said is in force."""
    async with serving() as running, calling(running) as caller:
        frame = len(json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": ""}}))
        for size in (1 << 10, 16 << 10, (64 << 10) - 1, (64 << 10) + 1, 256 << 10):
            caller.send("session.update", session={"type": "realtime", "instructions": "x" * (size - frame)})
            await caller.until("session.updated")
            caller.ask("hello")
            await caller.until("response.done")
            (system, *_) = running.client.answers()[-1].request.messages
            assert system.role == "system" and len(system.parts[0].text) == size - frame


async def test_a_microphone_that_is_opened_late_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = asyncio.Event()
    recv = Microphone.recv

    async def late(microphone: Microphone) -> AudioFrame:
        await opened.wait()
        return await recv(microphone)

    monkeypatch.setattr(Microphone, "recv", late)
    async with serving() as running, calling(running) as caller:
        await asyncio.sleep(2 * STALL_S)
        opened.set()
        caller.microphone.say(voice(0.6))
        await caller.until("input_audio_buffer.speech_started")
        await caller.until("response.done")


async def test_hanging_up_at_odd_moments() -> None:
    async with serving() as running:
        early = Caller(running)
        answer = await early.post()
        for _ in range(3):  # before the caller has come, and again while it is being freed
            done = await running.http.post(f"{answer.headers['location']}/hangup")
            assert done.status_code in (200, 404)
        await settled(running)
        await early.close()
        async with calling(running) as caller:
            caller.ask("hello")
            await caller.until("output_audio_buffer.started")
            both = await asyncio.gather(*(running.http.post(f"{caller.location}/hangup") for _ in range(4)))
            assert both[0].status_code == 200 and {a.status_code for a in both} <= {200, 404}
            await settled(running)
        assert running.doors.state.admission.open == 0
        for wrong in ("rtc_", "%00", "../../x", "rtc_" + "x" * 5_000, "\U0001f436"):
            lost = await running.http.post(f"/v1/realtime/calls/{wrong}/hangup")
            assert lost.status_code in (404, 405), wrong


async def test_after_the_drain_nobody_is_taken_in() -> None:
    async with serving() as running:
        await running.doors.drain()
        caller = Caller(running)
        refused = await caller.post()
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "server_shutting_down"
        assert running.calls == 0
        await caller.close()


async def test_the_same_offer_twice_is_one_call_and_one_that_never_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.realtime.webrtc.peer.CONNECT_S", 1.5)
    async with serving() as running:
        caller = Caller(running)
        body = {"content": await caller.offer(), "headers": {"Content-Type": "application/sdp"}}
        first, second = [await running.http.post("/v1/realtime/calls", **body) for _ in range(2)]  # type: ignore[arg-type]
        assert first.status_code == second.status_code == 201
        await caller.accept(second)
        await answers(running, caller)
        await settled(running, 1)
        await caller.close()
        await settled(running)


async def test_garbage_on_the_line_is_passed_over() -> None:
    """Datagrams that are none of STUN, DTLS and SRTP, or only nearly, from the caller's own address."""
    drawn = random.Random(7)
    async with serving() as running, line() as way:
        caller = Caller(running, line=way)
        await caller.accept(await caller.post())
        way.weather.spoilt = 0.05
        for first in (0, 1, 20, 22, 23, 63, 128, 144, 200, 255):
            for size in (0, 1, 3, 11, 12, 13, 20, 60, 1_200):
                data = bytes([first]) * (size > 0) + drawn.randbytes(max(0, size - 1))
                way.inject(data)
        await answers(running, caller)
        await caller.close()
        await settled(running)
