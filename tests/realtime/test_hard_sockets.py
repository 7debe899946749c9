"""Peers that misbehave: rubbish, huge frames, no reading, no answering, vanishing. Nothing leaks, nobody else notices."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import random
import resource
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from antiphon.realtime import holdings, outbox, sockets
from antiphon.realtime.protocol import wire
from antiphon.session.features import Features
from tests.realtime.conversing import Running, hush, open_descriptors, serving, talking, voice
from tests.realtime.rest.conftest import until
from tests.realtime.stubs import Script, StubClient
from tests.realtime.test_wire import FULL

HANDSHAKE = (
    "GET /v1/realtime?model=stub HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def still_serves(running: Running) -> None:
    async with talking(running) as talk:
        await talk.until("session.created")


def rubbish() -> Iterator[str | bytes]:
    yield from ("", "{", "[]", "3", '"x"', "{}", '{"type":7}', '{"type":"x"}', "\x00", b"\xff\xfe", b"{}", "[" * 50_000)
    for kind, fields in FULL.items():
        for value in (None, 7, [], {}, "x", True):
            for field in [*fields, "event_id"]:
                yield json.dumps({"type": kind, **fields, field: value})
    for audio in ("A", "====", "ÄÖ", "<", "A" * 999_999):
        yield json.dumps({"type": "input_audio_buffer.append", "audio": audio})


async def test_rubbish_is_answered_by_errors_and_the_session_stays_open() -> None:
    async with serving() as running, talking(running) as talk:
        await talk.say_hello(audio={"input": {"turn_detection": None}})
        sent = 0
        for frame in rubbish():
            await talk.socket.send(frame)
            sent += 1
        await talk.send("session.update", session={"type": "realtime", "instructions": "still here"})
        await until(
            lambda: any(e["type"] == "session.updated" and e["session"]["instructions"] == "still here" for e in talk.events)
        )
        errors = [e for e in talk.events if e["type"] == "error"]
        assert talk.closed is None and len(errors) > sent / 2
        assert all(e["error"]["type"] == "invalid_request_error" for e in errors)


@pytest.mark.parametrize("seed", range(4))
async def test_events_in_every_order(seed: int) -> None:
    """Well-formed events, at random, with ids of all kinds: no fault of the server, and one end per response."""
    rng = random.Random(seed)
    async with serving(features=Features(window_s=0.5)) as running, talking(running) as talk:
        await talk.until("session.created")
        ids = ["nothing"]

        def event() -> dict[str, Any]:
            kind = rng.choice(list(FULL))
            fields: dict[str, Any] = json.loads(json.dumps(FULL[kind]))
            if kind == "input_audio_buffer.append":
                sound = voice(0.1) if rng.random() < 0.5 else hush(0.1)
                fields["audio"] = base64.b64encode((sound * 32767).astype("<i2").tobytes()).decode()
            if "item_id" in fields:
                fields["item_id"] = rng.choice(ids)
            if kind == "conversation.item.truncate":
                fields["audio_end_ms"] = rng.choice([0, 10, 10**6, -5])
            if kind == "conversation.item.create":
                fields["previous_item_id"] = rng.choice([None, "root", *ids])
            if kind == "response.create":
                choices: list[dict[str, Any]] = [{}, {"conversation": "none", "input": []}, {"output_modalities": ["text"]}]
                fields["response"] = rng.choice(choices)
            if kind == "session.update":
                turns = rng.choice([None, {"type": "server_vad", "silence_duration_ms": 100}, {"type": "semantic_vad"}])
                fields["session"]["audio"] = {"input": {"turn_detection": turns}}
            return {"type": kind, **fields}

        for _ in range(250):
            await talk.socket.send(json.dumps(event()))
            if rng.random() < 0.2:
                await asyncio.sleep(0)
            ids = ["nothing", *(e["item"]["id"] for e in talk.events if e["type"] == "conversation.item.added")]
        await talk.socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "prompt": {"id": "end"}}}))
        async with asyncio.timeout(20):
            while not any(e["type"] == "session.updated" and e["session"]["prompt"] for e in talk.events):
                assert talk.closed is None, talk.closed
                await asyncio.sleep(0.01)
        faults = [e for e in talk.events if e["type"] == "error" and e["error"]["type"] != "invalid_request_error"]
        assert faults == []
        begun = [e["response"]["id"] for e in talk.events if e["type"] == "response.created"]
        ended = [e["response"]["id"] for e in talk.events if e["type"] == "response.done"]
        assert len(ended) == len(set(ended)) and set(ended) <= set(begun)


async def test_the_largest_frame_passes_and_a_larger_one_closes() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving() as running:
        async with talking(running) as talk:
            await talk.say_hello(audio={"input": {"turn_detection": None}})
            most = base64.b64encode(bytes(wire.MAX_APPEND)).decode()
            await talk.send("input_audio_buffer.append", audio=most)
            await talk.send("input_audio_buffer.append", audio=most + "AAAA")
            assert (await talk.until("error"))["error"]["param"] == "audio"
            await talk.send("input_audio_buffer.clear")
            await talk.until("input_audio_buffer.cleared")
            with contextlib.suppress(ConnectionClosed):
                await talk.send("input_audio_buffer.append", audio="A" * (wire.MAX_FRAME + 1))
            assert await talk.close_code() == 1009
        await still_serves(running)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 700_000  # KB: a few copies of the frame and of its samples, not one for each of its slices


def raw_socket(running: Running, receive_buffer: int = 4096) -> socket.socket:
    """A peer that has shaken hands and does nothing more."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.setblocking(False)
    return peer


async def shake_hands(running: Running) -> socket.socket:
    loop = asyncio.get_running_loop()
    peer = raw_socket(running)
    await loop.sock_connect(peer, ("127.0.0.1", running.port))
    await loop.sock_sendall(peer, HANDSHAKE.encode())
    await loop.sock_recv(peer, 64)
    return peer


def masked(text: str) -> bytes:
    """One client frame (RFC 6455 section 5.2) with a mask of zeros."""
    data = text.encode()
    size = len(data)
    head = bytes([0x81, 0x80 | size]) if size < 126 else bytes([0x81, 0xFE]) + struct.pack("!H", size)
    return head + bytes(4) + data


async def gone(running: Running) -> None:
    await until(lambda: not len(running.doors.sessions))


async def test_a_client_that_does_not_read_costs_a_bounded_amount_and_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SEND_TIMEOUT_S", 0.5)
    monkeypatch.setattr(outbox.Outbox.__init__, "__defaults__", (outbox.MAX_UNSENT, 0.5))
    async with serving(StubClient(Script(audio_s=60.0)), features=Features(window_s=float("inf"))) as running:
        loop = asyncio.get_running_loop()
        peer = await shake_hands(running)
        try:
            await loop.sock_sendall(peer, masked('{"type":"response.create"}'))
            await until(lambda: len(running.doors.sessions))
            (connection,) = running.doors.sessions._open.values()
            most = 0
            async with talking(running) as other:
                await other.until("session.created")
                async with asyncio.timeout(10):
                    while len(running.doors.sessions) > 1:
                        most = max(most, connection._outbox.unsent)  # type: ignore[attr-defined]
                        await asyncio.sleep(0.01)
                await other.send("session.update", session={"type": "realtime"})
                await other.until("session.updated")
            assert 0 < most <= outbox.MAX_UNSENT + wire.MAX_OUT
            assert "antiphon_stalled_readers_total 1.0" in running.doors.state.metrics.text().decode()
        finally:
            peer.close()


async def test_a_peer_that_answers_no_ping_is_noticed_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sockets.SETTINGS, "ws_ping_interval", 0.2)
    monkeypatch.setitem(sockets.SETTINGS, "ws_ping_timeout", 0.2)
    async with serving() as running:
        peer = await shake_hands(running)
        try:
            await until(lambda: len(running.doors.sessions))
            await gone(running)
        finally:
            peer.close()


@pytest.mark.parametrize("ending", ["reset", "half", "close", "eof_in_frame"])
async def test_every_kind_of_leaving_in_mid_answer_aborts_the_work(ending: str) -> None:
    client = StubClient(Script(audio_s=30.0, realtime_factor=1.0))
    async with serving(client) as running:
        loop = asyncio.get_running_loop()
        peer = await shake_hands(running)
        await loop.sock_sendall(peer, masked('{"type":"response.create"}'))
        await until(lambda: client.answers() and client.answers()[0].made >= 8)
        if ending == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif ending == "half":
            peer.shutdown(socket.SHUT_WR)
        elif ending == "eof_in_frame":
            await loop.sock_sendall(peer, masked("x" * 500)[:100])
        elif ending == "close":
            await loop.sock_sendall(peer, b"\x88\x80\x00\x00\x00\x00")
        if ending != "half":
            peer.close()
        await gone(running)
        peer.close()
        (work,) = client.answers()
        assert "asked" in work.timeline and client.forgotten
        await still_serves(running)


async def test_two_hundred_connections_leave_nothing_behind() -> None:
    client = StubClient(Script(audio_s=5.0, realtime_factor=1.0))
    async with serving(client) as running:
        await still_serves(running)
        await gone(running)
        gc.collect()
        tasks, descriptors = len(asyncio.all_tasks()), open_descriptors()

        async def visit(n: int) -> None:
            if n % 4 == 0:
                peer = await shake_hands(running)
                if n % 8 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
                return
            async with talking(running) as talk:
                await talk.until("session.created")
                if n % 4 == 1:
                    await talk.ask("hello")
                    await talk.until("response.created")
                if n % 4 == 2:
                    await talk.speak(voice(0.3))

        for start in range(0, 200, 20):
            await asyncio.gather(*(visit(n) for n in range(start, start + 20)))
        await gone(running)
        async with asyncio.timeout(30):
            while len(asyncio.all_tasks()) > tasks or open_descriptors() > descriptors + 1:
                gc.collect()
                await asyncio.sleep(0.05)
        assert not client.open
        assert running.doors.state.admission.open == 0
        await still_serves(running)


async def test_a_pong_is_in_time_while_a_long_recording_is_taken_in() -> None:
    async with serving() as running, talking(running) as busy, talking(running) as other:
        await busy.say_hello(audio={"input": {"turn_detection": None}})
        await other.until("session.created")
        most = base64.b64encode(bytes(wire.MAX_APPEND)).decode()
        sending = asyncio.create_task(busy.send("input_audio_buffer.append", audio=most))
        slowest = 0.0
        for _ in range(5):
            loop = asyncio.get_running_loop()
            asked = loop.time()
            await (await other.socket.ping())
            slowest = max(slowest, loop.time() - asked)
        await sending
        assert slowest < 20.0  # the library's own patience
        await busy.send("input_audio_buffer.clear")
        await busy.until("input_audio_buffer.cleared", within=30.0)


async def test_no_frame_of_an_answer_is_large() -> None:
    client = StubClient(Script(audio_s=20.0, chunk_s=20.0))
    async with serving(client, features=Features(window_s=float("inf"))) as running, talking(running) as talk:
        await talk.until("session.created")
        await talk.ask("hello")
        await talk.until("response.done")
        assert max(e["_bytes"] for e in talk.events) < 64 * 1024


async def test_a_conversation_cannot_be_filled_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings.Holdings.__init__, "__defaults__", (1 << 20,))
    async with serving() as running, talking(running) as talk:
        await talk.until("session.created")

        async def create(name: str, size: int) -> None:
            content = [{"type": "input_text", "text": "x" * size}]
            item = {"id": name, "type": "message", "role": "user", "content": content}
            await talk.send("conversation.item.create", item=item, event_id=name)

        await create("a", 900_000)
        await talk.until("conversation.item.done")
        await create("a", 10)  # refused by the session: takes no room
        assert (await talk.until("error"))["error"]["code"] == "item_create_duplicate_item_id"
        await create("b", 300_000)
        error = (await talk.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_too_large", "b")
        await talk.send("conversation.item.delete", item_id="a")
        await talk.until("conversation.item.deleted")
        await create("b", 300_000)
        await talk.until("conversation.item.done")
