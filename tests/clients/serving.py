"""A server for the stock clients: the real one on the CPU voice, its TLS twin, and the recording that is spoken to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import soundfile
import soxr

START_S = 240.0
RATE = 24_000
ROOT = Path(__file__).parent.parent.parent
SHARED = Path(os.environ.get("ANTIPHON_SHARED", ROOT.parent / "shared"))
REAL = [sys.executable, "-m", "antiphon", "serve", "--port", "0"]
STUB = [sys.executable, "-m", "tests.realtime.stub_server", "0"]


class NotStarted(Exception):
    """The server did not come up; the text holds the end of what it said."""


@contextlib.contextmanager
def server(command: list[str]) -> Iterator[int]:
    """Run a server until the context ends; its port."""
    with started(command) as (port, _):
        yield port


@contextlib.contextmanager
def started(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The same, with its process."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    lines: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            del lines[:-200]
            if _port(line):
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        ready.wait(START_S)
        port = next((p for line in lines if (p := _port(line))), None)
        if port is None:
            raise NotStarted("".join(lines[-15:]))
        yield port, process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)


def _port(line: str) -> int | None:
    found = re.search(r"ready (?:at \w+://\S+:)?(\d+)\s*$", line)
    return int(found[1]) if found else None


@contextlib.contextmanager
def tls_twin(port: int, cert: Path, key: Path) -> Iterator[int]:
    """A TLS port in front of a plain one: npm openai speaks nothing but wss."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    loop = asyncio.new_event_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, forth), carry(back, writer))

    listening = loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()


def recording(port: int, folder: Path) -> Path:
    """A short spoken question, 24 kHz mono WAV: a human's where the recordings are here, else the server's own voice."""
    target = folder / "speech.wav"
    human = SHARED / "audio" / "dog-or-cat.mp3"
    source = human
    if not human.exists():
        source = folder / "said.wav"
        body = {"model": "tts", "voice": "default", "input": "Do you like dogs or cats?", "response_format": "wav"}
        source.write_bytes(httpx.post(f"http://127.0.0.1:{port}/v1/audio/speech", json=body, timeout=60).content)
    samples, rate = soundfile.read(source, dtype="float32", always_2d=True)
    soundfile.write(target, soxr.resample(samples.mean(1), rate, RATE), RATE, subtype="PCM_16")
    return target


def seconds_since(began: float) -> float:
    return round(time.monotonic() - began, 1)
