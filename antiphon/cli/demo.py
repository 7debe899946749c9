"""``antiphon demo``: start a server, ask it a spoken question over /v1/realtime, keep the spoken answer."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soundfile
import typer
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from antiphon.cli.backend import fetch, needed_weights, require_extra
from antiphon.cli.console import fail
from antiphon.codecs.pcm import from_s16, to_s16
from antiphon.settings import ServerSettings

RATE = 24_000
FRAME = RATE // 50
SILENCE_MS = 500
PATIENCE_S = 60.0
QUESTION = Path(__file__).parent / "question.wav"
LOUD = 300 / 32768
"""A sample is voiced above this (the rule of the voice-to-voice benchmark)."""


@dataclass
class Heard:
    """What came back, and when (seconds on the monotonic clock)."""

    question: str = ""
    answer: str = ""
    audio: list[NDArray[np.float32]] = field(default_factory=list)
    at: dict[str, float] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        self.at.setdefault(name, time.monotonic())


def demo(
    question: Annotated[Path, typer.Option(help="A spoken question (an audio file).")] = QUESTION,
    out: Annotated[Path, typer.Option(help="Where the spoken answer goes.")] = Path("reply.wav"),
    url: Annotated[str, typer.Option(help="A running server; without it, one is started.")] = "",
) -> None:
    """Ask a spoken question, hear a spoken answer, see where the time went."""
    speech = _speech(question)
    if url:
        heard = asyncio.run(converse(url, speech))
    else:
        require_extra("local")
        fetch(needed_weights(ServerSettings()))
        with server() as started:
            heard = asyncio.run(converse(started, speech))
    if not heard.audio:
        fail("the server gave no spoken answer")
    audio = np.concatenate(heard.audio)
    soundfile.write(out, audio, RATE, subtype="PCM_16")
    report(heard, audio, out)


def _speech(file: Path) -> NDArray[np.float32]:
    from antiphon.codecs.media import decode

    try:
        return decode(file.read_bytes(), RATE)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", code=2)


@contextmanager
def server() -> Iterator[str]:
    """A server of our own on a free port, told to end afterwards; its log is shown only if it does not start."""
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "0", "--log-level", "warning"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    ready = threading.Event()
    address: list[str] = []

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line)
            if line.startswith("Antiphon is ready at "):
                address.append(line.split()[-1])
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    print("starting the server ...", flush=True)
    try:
        ready.wait(timeout=300)
        if not address:
            process.kill()
            fail("the server did not start:\n" + "".join(lines[-8:]))
        yield address[0]
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(timeout=5)


async def converse(url: str, speech: NDArray[np.float32]) -> Heard:
    """Speak at real-time pace, then be silent until the answer is done."""
    heard = Heard()
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=antiphon-local"
    async with connect(address, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": _session()}))
        speaking = asyncio.create_task(_speak(socket, speech, heard))
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for message in socket:
                    if _hear(json.loads(message), heard):
                        break
        except TimeoutError:
            fail(f"no answer within {PATIENCE_S:.0f} s")
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
    return heard


def _session() -> dict[str, Any]:
    turn_detection = {"type": "server_vad", "silence_duration_ms": SILENCE_MS}
    return {
        "type": "realtime",
        "audio": {"input": {"turn_detection": turn_detection, "transcription": {"model": "whisper-1"}}},
    }


async def _speak(socket: ClientConnection, speech: NDArray[np.float32], heard: Heard) -> None:
    last_voiced = int(np.flatnonzero(np.abs(speech) > LOUD)[-1]) if np.any(np.abs(speech) > LOUD) else 0
    began = time.monotonic()
    sent = 0
    while True:
        frame = np.zeros(FRAME, np.float32)
        piece = speech[sent : sent + FRAME]
        frame[: piece.size] = piece
        if sent <= last_voiced < sent + FRAME:
            heard.mark("end of speech")
        audio = base64.b64encode(to_s16(frame)).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        sent += FRAME
        await asyncio.sleep(max(0.0, began + sent / RATE - time.monotonic()))


def _hear(event: dict[str, Any], heard: Heard) -> bool:
    """True at the end of the answer."""
    match event["type"]:
        case "input_audio_buffer.speech_stopped":
            heard.mark("turn is over")
        case "conversation.item.input_audio_transcription.completed":
            heard.mark("transcript")
            heard.question = event["transcript"]
        case "response.output_audio_transcript.delta":
            heard.mark("first token")
            heard.answer += event["delta"]
        case "response.output_audio.delta":
            heard.mark("first audio")
            heard.audio.append(from_s16(base64.b64decode(event["delta"])))
        case "response.done":
            status = event["response"]["status"]
            if status != "completed":
                fail(f"the response ended {status}: {event['response'].get('status_details')}")
            return True
        case "error":
            fail(f"the server said: {event['error']['message']}")
    return False


def report(heard: Heard, audio: NDArray[np.float32], out: Path) -> None:
    """What was heard, what was answered, where the time went."""
    print(f"\nheard:    {heard.question.strip()}")
    print(f"answered: {heard.answer.strip()}\n")
    zero = heard.at.get("end of speech", 0.0)
    print("after the end of speech          ms")
    for name in ("turn is over", "transcript", "first token", "first audio"):
        if name in heard.at:
            print(f"  {name:28} {(heard.at[name] - zero) * 1000:6.0f}")
    print(f"  (the turn is over after {SILENCE_MS} ms of silence; work begins before that)\n")
    print(f"{out}: {audio.size / RATE:.1f} s of speech")
    print("\nto serve for real:  antiphon serve        then open  http://127.0.0.1:8000")
