"""Connections that ask nothing, and more of them than there is room for: who talks goes on talking, nothing is kept."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette

from antiphon.realtime import http_protocol, sockets
from tests.realtime.conversing import serving, talking
from tests.realtime.rest.conftest import until

ROOT = Path(__file__).parent.parent.parent
HALF_A_HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"
HALF_A_BODY = b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"
TRACE = b"GET /v1/realtime/sessions/none/trace HTTP/1.1\r\nHost: x\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def knock(port: int) -> Stream:
    return await asyncio.open_connection("127.0.0.1", port)


async def ended(stream: Stream) -> bytes:
    """All that came until the server closed."""
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            return await stream[0].read()
        return b""


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that holds nothing open but its connections."""
    monkeypatch.setattr(http_protocol.HttpProtocol, "counted_at", -1e9)
    monkeypatch.setattr(http_protocol, "in_use", lambda: 0)


def test_a_quarter_of_the_descriptors_is_kept() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < http_protocol.room() <= soft * 3 / 4 + 1


async def test_past_the_room_a_connection_is_turned_away_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_protocol, "room", lambda: 8)
    alone(monkeypatch)
    monkeypatch.setattr(http_protocol.HttpProtocol, "said_at", -1e9)
    async with serving() as running, talking(running) as talk:
        await talk.until("session.created")
        idle = [await knock(running.port) for _ in range(7)]
        for _ in range(5):
            answer = await ended(await knock(running.port))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 5" in head
            assert json.loads(body)["error"]["code"] == "server_busy"
        assert sum("turned away" in record.message for record in caplog.records) == 1, "not one line for each"
        await talk.send("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")
        held = len(running.server.server_state.connections)
        idle.pop()[1].close()
        await until(lambda: len(running.server.server_state.connections) < held)
        reader, writer = await knock(running.port)
        writer.write(TRACE)
        assert b" 404 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        for _, writer in idle:
            writer.close()


async def test_who_is_turned_away_while_he_sends_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "room", lambda: 1)
    alone(monkeypatch)
    async with serving() as running:
        first = await knock(running.port)
        late = await knock(running.port)
        late[1].write(HALF_A_BODY)
        assert (await late[0].readline()).startswith(b"HTTP/1.1 503 ")
        late[1].write(bytes(100_000))  # over a connection that was closed, this would end it with what was not read
        await asyncio.sleep(0.1)
        assert b"server_busy" in await ended(late)
        first[1].close()
        late[1].close()
        await until(lambda: not http_protocol.HttpProtocol.turned_away)


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nX: " + b"a" * 66_000]
)
async def test_what_is_no_http_is_told_in_the_shape_of_every_error(sent: bytes) -> None:
    """A TLS handshake on a plain port, a head that names no host, a head without an end."""
    async with serving() as running:
        stream = await knock(running.port)
        stream[1].write(sent + b"\r\n\r\n" * (len(sent) < 1000))
        head, _, body = (await ended(stream)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n") and f"Content-Length: {len(body)}".encode() in head
        error = json.loads(body)["error"]
        assert error["type"] == "invalid_request_error" and error["code"] == "invalid_http" and error["message"]
        stream[1].close()


async def test_what_is_no_http_behind_an_answer_ends_the_connection_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer to an address that there is not does not wait for the body, which turns out to be in no chunks."""
    async with serving() as running:
        reader, writer = await knock(running.port)
        writer.write(b"POST /none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b" 404 " in await reader.readline()
        writer.write(b"no chunk\r\n" * 100)
        await ended((reader, writer))
        writer.close()
    assert not [record for record in caplog.records if record.exc_info or "Fatal" in record.message]


async def test_a_visit_leaves_nothing_behind() -> None:
    async with serving() as running:
        for _ in range(3):
            async with talking(running) as talk:
                await talk.until("session.created")
            stream = await knock(running.port)
            stream[1].write(TRACE)
            await stream[0].readline()
            stream[1].close()
        await until(lambda: not running.server.server_state.connections)

        def left() -> list[object]:
            gc.collect()
            return [each for each in gc.get_objects() if isinstance(each, http_protocol.HttpProtocol)]

        await until(lambda: not left())


@pytest.mark.parametrize("held", [0, 60])
async def test_a_flood_leaves_descriptors_for_the_others(held: int, tmp_path: Path) -> None:
    """``held``: what the server holds open for its models' processes, say."""
    log = tmp_path / "log"
    hold = f"import os; [os.open(os.devnull, os.O_RDONLY) for _ in range({held})]"
    serve = "import asyncio; from tests.realtime.stub_server import main; asyncio.run(main(0, []))"
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (160, 160))
    with log.open("wb") as said:
        server = subprocess.Popen(  # noqa: ASYNC220 - it takes a moment
            [sys.executable, "-c", f"{hold}; {serve}"], stdout=said, stderr=said, preexec_fn=limit, cwd=ROOT
        )
    flood: list[socket.socket] = []
    try:
        async with asyncio.timeout(30):
            while not (found := re.search(rb"ready (?:at \w+://\S+:)?(\d+)", log.read_bytes())):
                assert server.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
        port = int(found[1])
        for _ in range(400):
            flood.append(socket.socket())
            flood[-1].setblocking(False)
            flood[-1].connect_ex(("127.0.0.1", port))
        await asyncio.sleep(1.5)
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < 150
        assert "Traceback" not in log.read_text()
    finally:
        for each in flood:
            each.close()
        server.kill()
        server.wait()


async def test_who_never_shakes_hands_counts_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_protocol, "room", lambda: 6)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    await (
        await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.clients.py.certificate", cert, key, cwd=ROOT)
    ).wait()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def asked() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(TRACE)
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        return line

    named = {"log_level": "error", "lifespan": "off", "ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    server = sockets.Server(sockets.config(Starlette(), port=0, **named), lambda: asyncio.sleep(0))
    serving_it = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has a flag, no event
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    silent = [await knock(port) for _ in range(6)]
    await asyncio.sleep(0.2)
    assert await ended(await knock(port)) == b""
    for _, writer in silent:
        writer.close()
    await asyncio.sleep(0.2)
    alone(monkeypatch)  # what is left of them counts no more, collected or not
    assert b" 404 " in await asked()
    server.should_exit = True
    await serving_it


async def test_who_asks_nothing_is_let_go_and_a_conversation_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "SILENCE_S", 0.1)
    async with serving() as running, talking(running) as talk:
        await talk.until("session.created")
        silent, halfway, promised = [await knock(running.port) for _ in range(3)]
        halfway[1].write(HALF_A_HEAD)
        promised[1].write(HALF_A_BODY)
        assert await ended(silent) == b""
        assert await ended(halfway) == b""
        assert await ended(promised) == b""
        await asyncio.sleep(0.5)
        await talk.send("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")


async def test_an_answer_that_takes_its_time_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "SILENCE_S", 0.1)
    async with serving() as running:
        inner = running.server.config.loaded_app

        async def slow(scope: object, receive: object, send: object) -> None:
            await asyncio.sleep(0.5)
            await inner(scope, receive, send)

        running.server.config.loaded_app = slow
        reader, writer = await knock(running.port)
        writer.write(TRACE)
        assert b" 404 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
