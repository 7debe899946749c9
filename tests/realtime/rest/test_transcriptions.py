"""Transcriptions on a stub recogniser; the expected bodies are written out from the formats' own definitions."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.outputs import Segment, TranscriptDelta, TranscriptResult, Word
from antiphon.pipelines.requests import GenerateRequest
from antiphon.realtime.languages import NAMES, code_of, name_of
from tests.realtime.rest.conftest import Serve, Server
from tests.realtime.stub_client import TEXT_ONLY, Step

URL = "/v1/audio/transcriptions"
RESULT = TranscriptResult(
    text=" Hello there. How are you?",
    language="en",
    duration=3661.5,
    segments=(
        Segment(0.0, 1.25, " Hello there.", (1, 2), -0.25, 0.01, 1.1, 0.0, 0),
        Segment(3600.0, 3661.5, " How --> are\n\nyou?", (3,), -0.5, 0.02, 1.2, 0.2, 3000),
    ),
    words=(Word(" Hello", 0.0, 0.5), Word(" there.", 0.5, 1.25)),
)


def read(_: GenerateRequest) -> list[Step]:
    return [
        Event("transcript", TranscriptDelta(" Hello there.")),
        Event("transcript", TranscriptDelta(" How are you?")),
        Event("transcript", RESULT, last=True),
    ]


async def post(server: Server, data: dict[str, Any] | None = None, url: str = URL, file: Any = ("a.mp3", b"sound")) -> Any:
    return await server.http.post(url, files={"file": file}, data={"model": "whisper-1", **(data or {})})


async def test_json_and_text(serve: Serve) -> None:
    async with serve(read) as server:
        plain = await post(server)
        text = await post(server, {"response_format": "text"})
        request = server.stub.requests[0]
    assert plain.json() == {"text": "Hello there. How are you?", "usage": {"type": "duration", "seconds": 3661.5}}
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text == "Hello there. How are you?\n"
    assert (request.audio.data, request.audio.format) == (b"sound", "mp3")
    assert (request.task, request.terminals, request.listener) == ("transcription", ("transcript",), "none")


async def test_verbose_json(serve: Serve) -> None:
    async with serve(read) as server:
        body = (await post(server, {"response_format": "verbose_json"})).json()
        both = await post(
            server, {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"], "language": "English"}
        )
        words = await post(server, {"response_format": "verbose_json", "timestamp_granularities": "word"})
        assert server.stub.requests[1].transcription.words
        assert server.stub.requests[1].transcription.language == "en"
    assert {k: body[k] for k in ("task", "language", "duration", "text")} == {
        "task": "transcribe", "language": "english", "duration": 3661.5, "text": "Hello there. How are you?"
    }  # fmt: skip
    assert "words" not in body
    assert body["segments"][0] == {
        "id": 0, "seek": 0, "start": 0.0, "end": 1.25, "text": " Hello there.", "tokens": [1, 2], "temperature": 0.0,
        "avg_logprob": -0.25, "compression_ratio": 1.1, "no_speech_prob": 0.01,
    }  # fmt: skip
    assert both.json()["words"] == [
        {"word": "Hello", "start": 0.0, "end": 0.5}, {"word": "there.", "start": 0.5, "end": 1.25}
    ]  # fmt: skip
    assert "segments" in both.json()
    assert "segments" not in words.json()


async def test_srt_and_vtt(serve: Serve) -> None:
    async with serve(read) as server:
        srt, vtt = await post(server, {"response_format": "srt"}), await post(server, {"response_format": "vtt"})
    assert srt.text == (
        "1\n00:00:00,000 --> 00:00:01,250\nHello there.\n\n2\n01:00:00,000 --> 01:01:01,500\nHow → are\nyou?\n\n"
    )
    assert vtt.headers["content-type"].startswith("text/vtt")
    assert vtt.text == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nHello there.\n\n01:00:00.000 --> 01:01:01.500\nHow → are\nyou?\n\n"
    )


@pytest.mark.parametrize("deltas", [True, False])
async def test_streamed(serve: Serve, deltas: bool) -> None:
    async with serve(lambda r: read(r) if deltas else read(r)[-1:]) as server:
        response = await post(server, {"stream": "true"})
        ignored = await post(server, {"stream": "true", "response_format": "srt"})
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    told = [json.loads(event) for event in events[:-1]]
    assert [e["type"] for e in told] == ["transcript.text.delta"] * (2 if deltas else 1) + ["transcript.text.done"]
    assert "".join(e["delta"] for e in told[:-1]).strip() == told[-1]["text"] == "Hello there. How are you?"
    assert told[-1]["usage"] == {"type": "duration", "seconds": 3661.5}
    assert ignored.text.startswith("1\n")


async def test_translations(serve: Serve) -> None:
    async with serve(read) as server:
        body = (await post(server, {"response_format": "verbose_json"}, "/v1/audio/translations")).json()
        assert server.stub.requests[0].transcription.translate
    assert body["task"] == "translate"


async def test_hints_and_id_reach_the_graph(serve: Serve) -> None:
    form = {"prompt": "Antiphon", "keywords[]": ["Vienna", "Bruckner"], "languages[]": ["de", "en"], "temperature": "0.2"}
    async with serve(read) as server:
        response = await post(server, {**form, "request_id": "tr-1", "chunking_strategy": "auto", "stream": "false"})
        request = server.stub.requests[0]
    assert response.headers["x-request-id"] == request.id == "tr-1"
    told = request.transcription
    assert (told.prompt, told.keywords, told.language, told.temperature) == ("Antiphon", ("Vienna", "Bruckner"), "de", 0.2)


@pytest.mark.parametrize(
    ("form", "param", "code"),
    [
        ({"response_format": "diarized_json"}, "response_format", "unsupported_value"),
        ({"response_format": "xml"}, "response_format", "invalid_value"),
        ({"timestamp_granularities[]": "letter"}, "timestamp_granularities", "invalid_value"),
        ({"include[]": "logprobs"}, "include", "unsupported_value"),
        ({"stream": "perhaps"}, "stream", "invalid_type"),
        ({"temperature": "warm"}, "temperature", "invalid_type"),
        ({"temperature": "nan"}, "temperature", "invalid_value"),
        ({"language": "klingon"}, "language", "invalid_value"),
        ({"request_id": "with blank"}, "request_id", "invalid_value"),
    ],
)
async def test_bad_fields_are_named(serve: Serve, form: dict[str, str], param: str, code: str) -> None:
    async with serve(read) as server:
        response = await post(server, form)
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (400, param, code)
        assert not server.stub.requests


async def test_bad_files_are_named(serve: Serve) -> None:
    def script(_: GenerateRequest) -> list[Step]:
        return [Refused("the file is no audio container known here", code="invalid_audio", param="file")]

    async with serve(script, max_upload_bytes=1000) as server:
        none = await server.http.post(URL, data={"model": "x"}, files={"other": b""})
        text = await server.http.post(URL, data={"file": "hello"}, files={"other": b""})
        empty = await post(server, file=("a.wav", b""))
        rubbish = await post(server, file=("a.wav", b"x" * 999))
        large = await post(server, file=("a.wav", b"x" * 1001))
        huge = await post(server, file=("a.wav", b"x" * 3_000_000))
        json_body = await server.http.post(URL, json={"file": "x"})
        broken = await server.http.post(
            URL, content=b"--x\r\nnonsense", headers={"content-type": "multipart/form-data; boundary=x"}
        )
        unbounded = await server.http.post(URL, content=b"abc", headers={"content-type": "multipart/form-data"})
    told = [
        (r.status_code, r.json()["error"]["code"])
        for r in (none, text, empty, rubbish, large, huge, json_body, broken, unbounded)
    ]
    assert told == [
        (400, "missing_required_parameter"),
        (400, "invalid_type"),
        (400, "invalid_audio"),
        (400, "invalid_audio"),
        (413, "file_too_large"),
        (413, "request_too_large"),
        (415, "invalid_content_type"),
        (400, "missing_required_parameter"),
        (400, "invalid_form"),
    ]


async def test_a_pipeline_that_cannot_read_says_so(serve: Serve) -> None:
    async with serve(info=TEXT_ONLY) as server:
        assert "does not serve transcription" in (await post(server)).json()["error"]["message"]


async def test_spoken_words_never_reach_a_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve(read) as server:
        await post(server, {"prompt": "topsecret"})
        await post(server, {"stream": "true"})
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records if record.name.startswith("antiphon"))
    assert "transcription" in logged
    assert "Hello" not in logged
    assert "topsecret" not in logged


def test_languages() -> None:
    assert len(NAMES) >= 99
    assert (name_of("de"), name_of("xx")) == ("german", "xx")
    assert [code_of(x) for x in ("de", "DE", "en-US", "zh_CN", "German", "haitian creole", "klingon")] == [
        "de", "de", "en", "zh", "de", "ht", None
    ]  # fmt: skip
