"""What a body may be: not compressed; and an error names the field as the door does."""

from __future__ import annotations

import errno
import gzip
import json
import os
import tempfile

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.requests import GenerateRequest
from tests.realtime.rest.conftest import Serve
from tests.realtime.stub_client import Step


def undecodable(_: GenerateRequest) -> list[Step | Refused]:
    return [Refused("the audio file cannot be decoded", code="invalid_audio", param="audio")]


async def test_a_compressed_body_is_refused_as_such(serve: Serve) -> None:
    packed = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    async with serve() as server:
        answer = await server.http.post("/v1/chat/completions", content=packed, headers=headers)
        form = await server.http.post(
            "/v1/audio/transcriptions", content=packed, headers={**headers, "content-type": "multipart/form-data; boundary=x"}
        )
    for refused in (answer, form):
        assert refused.status_code == 415
        assert refused.json()["error"]["code"] == "unsupported_content_encoding"
        assert "gzip" in refused.json()["error"]["message"]


async def test_an_undecodable_upload_names_the_file_field(serve: Serve) -> None:
    async with serve(undecodable) as server:
        for data in ({}, {"stream": "true"}):
            answer = await server.http.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"x")}, data=data)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_audio", "file")


async def test_a_full_disk_is_told_as_what_it_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*args: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    async with serve() as server:
        files = {"file": ("a.wav", bytes(2 << 20))}
        answer = await server.http.post("/v1/audio/transcriptions", files=files)
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "30"
    assert answer.json()["error"]["code"] == "server_busy"
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1 and "No space left" in said[0].message and said[0].exc_info is None
