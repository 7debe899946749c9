"""Media files through the doors into the real preprocessing stage: what is wrong is told by name, what can be read is."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from antiphon.codecs.encode import wav_header
from tests.realtime.rest.conftest import Serve, Server, until
from tests.realtime.rest.stub_ear import stub_ear

soundfile = pytest.importorskip("soundfile")
URL = "/v1/audio/transcriptions"


def tone(rate: int, seconds: float = 1.0) -> Any:
    return (0.5 * np.sin(2 * np.pi * 1000 * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def made(rate: int, format: str, seconds: float = 1.0) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, tone(rate, seconds), rate, format=format)
    return out.getvalue()


def silence(hours: float) -> bytes:
    out = io.BytesIO()
    with soundfile.SoundFile(out, "w", 8000, 1, format="FLAC") as file:
        for _ in range(int(hours * 60)):
            file.write(np.zeros(8000 * 60, dtype=np.int16))
    return out.getvalue()


async def ready(server: Server) -> Server:
    await until(lambda: server.state.ready, 10)
    return server


GOOD = {
    "wav": lambda: made(16000, "WAV"),
    "flac": lambda: made(16000, "FLAC"),
    "mp3": lambda: made(16000, "MP3"),
    "ogg": lambda: made(16000, "OGG"),
    "384 kHz": lambda: made(384000, "WAV"),
    "odd length": lambda: wav_header(16000, 32001) + (tone(16000) * 32767).astype("<i2").tobytes() + b"\x01",
    "without sizes": lambda: wav_header(16000) + (tone(16000) * 32767).astype("<i2").tobytes(),
    "truncated wav": lambda: made(16000, "WAV", 2.0)[: 44 + 32000],
}
BAD = {
    "empty": lambda: b"",
    "no sound": lambda: wav_header(16000, 0),
    "not audio": lambda: b"this is a letter, not a sound" * 10,
    "an executable": lambda: b"\x7fELF" + bytes(2000),
    "a header alone": lambda: made(16000, "MP3")[:3],
    "1 Hz": lambda: wav_header(1, 4000) + bytes(4000),
    "2 hours": lambda: silence(2.0),
}


async def test_files_that_can_be_read(serve: Serve) -> None:
    async with serve(client=stub_ear()) as server:
        await ready(server)
        for name, make in GOOD.items():
            response = await server.http.post(URL, files={"file": ("any.bin", make(), "text/plain")})
            assert response.status_code == 200, (name, response.text)
            assert response.json()["text"] == "1000 Hz", name
            assert response.json()["usage"]["seconds"] == pytest.approx(1.0, abs=0.12), name


async def test_files_that_cannot_are_told_by_name_and_the_server_keeps_serving(serve: Serve) -> None:
    async with serve(client=stub_ear()) as server:
        await ready(server)
        for name, make in BAD.items():
            response = await server.http.post(URL, files={"file": ("a.wav", make(), "audio/wav")})
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (400, "invalid_audio"), (name, response.text)
            assert error["type"] == "invalid_request_error"
            assert len(error["message"]) > 10
        response = await server.http.post(URL, files={"file": ("a.wav", made(16000, "WAV"), "audio/wav")})
        assert response.status_code == 200


async def test_the_same_in_a_chat_whole_or_streamed(serve: Serve) -> None:
    def ask(data: bytes, format: str, stream: bool) -> dict[str, Any]:
        audio = {"data": base64.b64encode(data).decode().rstrip("="), "format": format}
        part = {"type": "input_audio", "input_audio": audio}
        return {"messages": [{"role": "user", "content": [part]}], "stream": stream}

    url = "/v1/chat/completions"
    async with serve(client=stub_ear()) as server:
        await ready(server)
        good = await server.http.post(url, json=ask(made(16000, "MP3"), "wav", False))
        assert good.json()["choices"][0]["message"]["content"] == "1000 Hz"
        raw = (tone(24000) * 32767).astype("<i2").tobytes()
        good = await server.http.post(url, json=ask(raw + b"\x01", "pcm16", True))
        assert '"content":"1000 Hz"' in good.text
        for stream in (False, True):
            bad = await server.http.post(url, json=ask(b"no sound in here", "mp3", stream))
            assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_audio")


def test_the_doors_load_no_model_library() -> None:
    """Importing the app must not pull what only a pipeline needs."""
    code = "import sys, json, antiphon.realtime.app; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout))
    assert not loaded & {"torch", "onnxruntime", "cyllama", "transformers", "hibari", "ctranslate2", "av", "soundfile", "scipy"}
