"""Speech on a stub voice that says tones; what it sent is read back by decoders that are not ours."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import sys
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.outputs import AudioDelta
from antiphon.pipelines.requests import GenerateRequest
from tests.realtime.rest.conftest import Serve, until
from tests.realtime.stub_client import TEXT_ONLY, Step, sound, tone

URL = "/v1/audio/speech"
SAY: dict[str, Any] = {"model": "tts-1", "input": "Good morning.", "voice": "anna"}
TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


def said(_: GenerateRequest) -> list[Step]:
    return sound(tone(1.0))


def heard(data: bytes, format: str) -> NDArray[np.float32]:
    if format == "pcm":
        return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(data), format={"opus": "ogg"}.get(format, format)) as file:
        mixer = av.AudioResampler(format="flt", layout="mono", rate=24000)
        frames = [*file.decode(audio=0), None]
        return np.concatenate([p.to_ndarray().ravel() for f in frames for p in mixer.resample(f)], dtype=np.float32)


@pytest.mark.parametrize("format", TYPES)
async def test_every_format_is_heard_as_it_was_said(serve: Serve, format: str) -> None:
    async with serve(said) as server:
        response = await server.http.post(URL, json={**SAY, "response_format": format})
        events = await server.http.post(URL, json={**SAY, "response_format": format, "stream_format": "sse"})
    assert response.headers["content-type"] == TYPES[format]
    assert "content-length" not in response.headers
    lines = [json.loads(line.removeprefix("data: ")) for line in events.text.splitlines() if line]
    assert events.headers["content-type"].startswith("text/event-stream")
    assert {event["type"] for event in lines[:-1]} == {"speech.audio.delta"}
    told = b"".join(base64.b64decode(event["audio"], validate=True) for event in lines[:-1])
    read = math.ceil(len("Good morning.") / 4)
    assert lines[-1] == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": read, "output_tokens": 20, "total_tokens": read + 20},
    }
    for data in (response.content, told):
        x = heard(data, format)
        assert 1.0 <= len(x) / 24000 < 1.1
        spectrum = np.abs(np.fft.rfft(x[4000:20000] * np.hanning(16000)))
        assert abs(int(np.argmax(spectrum)) * 1.5 - 440) <= 1.5
        level = 20 * np.log10(np.sqrt(np.mean(x[4000:20000] ** 2)) / (0.4 / math.sqrt(2)))
        assert abs(level) < 0.5


async def test_mp3_is_the_default_and_what_is_asked_reaches_the_graph(serve: Serve) -> None:
    async with serve(said) as server:
        body = {"input": "Hi", "speed": 1.5, "language": "en", "instructions": "whisper", "request_id": "say-1"}
        response = await server.http.post(URL, json=body)
        request = server.stub.requests[0]
    assert response.headers["content-type"] == "audio/mpeg"
    assert response.headers["x-request-id"] == "say-1"
    assert (request.task, request.text, request.terminals, request.id) == ("speech", "Hi", ("audio",), "say-1")
    assert (request.voice.name, request.voice.speed, request.voice.language) == ("default", 1.5, "en")


@pytest.mark.parametrize("format", ["pcm", "mp3", "wav"])
async def test_bytes_leave_before_the_voice_is_done(serve: Serve, format: str) -> None:
    gate = asyncio.Event()
    script = [Event("audio", AudioDelta(tone(0.3))), gate, *sound(tone(0.3))]
    body = {**SAY, "response_format": format}
    async with serve(lambda _: script, socket=True) as server, server.http.stream("POST", URL, json=body) as response:
        pieces = response.aiter_bytes()
        first = await anext(pieces)
        assert first, "sound is there while the voice still waits"
        gate.set()
        rest = b"".join([piece async for piece in pieces])
    assert len(heard(first + rest, format)) / 24000 == pytest.approx(0.6, abs=0.1)


async def test_text_with_nothing_to_say_is_an_empty_valid_answer(serve: Serve) -> None:
    async with serve(lambda _: [Event("audio", None, last=True, skipped=True)]) as server:
        for text in ("🎉🎉🎉", "...!?", "\n"):
            response = await server.http.post(URL, json={**SAY, "input": text, "response_format": "pcm"})
            assert (response.status_code, response.content) == (200, b"")
        response = await server.http.post(URL, json={**SAY, "input": "🎉"})
        assert np.abs(heard(response.content, "mp3")).max() < 1e-3


async def test_a_client_that_hangs_up_aborts_the_voice(serve: Serve) -> None:
    script = [Event("audio", AudioDelta(tone(0.3))), asyncio.Event()]
    async with serve(lambda _: script, socket=True) as server:
        async with server.http.stream("POST", URL, json={**SAY, "response_format": "pcm"}) as response:
            await anext(response.aiter_bytes())
        await server.settled()
        assert server.stub.generations[0].reason == "client"


async def test_a_client_that_does_not_read_is_given_up(serve: Serve) -> None:
    script = [Event("audio", AudioDelta(tone(5.0)))] * 60
    async with serve(lambda _: script, socket=True, send_timeout_s=0.2) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        body = json.dumps({**SAY, "response_format": "pcm"}).encode()
        writer.write(b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readline()
        await server.settled()
        assert server.stub.generations[0].reason == "client"
        await until(lambda: not server.connections)  # though the peer has never read, and never closed
        writer.transport.abort()


async def test_a_voice_that_breaks_cuts_the_connection_rather_than_pretend(serve: Serve) -> None:
    script = [Event("audio", AudioDelta(tone(0.3))), StageFailed("talker", "the voice broke")]
    async with serve(lambda _: script, socket=True) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await server.http.post(URL, json={**SAY, "response_format": "pcm"})
        events = await server.http.post(URL, json={**SAY, "response_format": "pcm", "stream_format": "sse"})
        assert json.loads(events.text.strip().splitlines()[-1].removeprefix("data: "))["error"]["message"] == "the voice broke"


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"input": ""}, "input", "string_too_short"),
        ({"input": "x" * 1_000_000}, "input", "string_above_max_length"),
        ({"input": 3}, "input", "invalid_type"),
        ({"voice": "nobody"}, "voice", "invalid_value"),
        ({"voice": {"name": "anna"}}, "voice.id", "missing_required_parameter"),
        ({"voice": 5}, "voice", "invalid_type"),
        ({"response_format": "midi"}, "response_format", "invalid_value"),
        ({"stream_format": "morse"}, "stream_format", "invalid_value"),
        ({"speed": 9}, "speed", "invalid_value"),
        ({"speed": "fast"}, "speed", "invalid_type"),
    ],
)
async def test_bad_fields_are_named(serve: Serve, change: dict[str, Any], param: str, code: str) -> None:
    async with serve(said) as server:
        response = await server.http.post(URL, json={**SAY, **change})
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, param, code)
        assert len(error["message"]) < 300, "the client's megabyte is not sent back"
        assert not server.stub.requests


async def test_missing_input_and_a_language_that_the_voice_lacks(serve: Serve) -> None:
    def script(_: GenerateRequest) -> list[Step]:
        return [Refused("the voice cannot speak 'ko'; it speaks en", code="unsupported_language", param="language")]

    async with serve(script) as server:
        assert (await server.http.post(URL, json={"voice": "anna"})).json()["error"]["param"] == "input"
        response = await server.http.post(URL, json={**SAY, "language": "ko"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_language")


async def test_a_text_only_pipeline_says_so(serve: Serve) -> None:
    async with serve(info=TEXT_ONLY) as server:
        error = (await server.http.post(URL, json=SAY)).json()["error"]
        assert error["code"] == "not_served_by_pipeline"
        assert "does not serve speech" in error["message"]


async def test_without_pyav_the_extra_is_named_and_plain_formats_still_work(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    async with serve(said) as server:
        error = (await server.http.post(URL, json=SAY)).json()["error"]
        assert error["code"] == "not_installed"
        assert "antiphon[local]" in error["message"]
        assert (await server.http.post(URL, json={**SAY, "response_format": "wav"})).status_code == 200
        assert not server.stub.live
