"""Chat completions on a stub pipeline. What is expected is OpenAI's published shape, written out here by hand."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import wave
from typing import Any

import httpx
import numpy as np
import pytest

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.outputs import TextDelta, Usage
from antiphon.pipelines.requests import AudioPart, GenerateRequest, ImagePart, Sampling, TextPart, ToolCall
from tests.realtime.rest.conftest import Serve, Server, hang_up_when
from tests.realtime.stub_client import TEXT_ONLY, Step, calls, sound, text, tone

URL = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "gpt-4o-audio-preview", "messages": [{"role": "user", "content": "Hi"}]}
AUDIO: dict[str, Any] = {**ASK, "modalities": ["text", "audio"], "audio": {"voice": "anna", "format": "pcm16"}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def spoken(request: GenerateRequest) -> list[Step]:
    """Text and audio interleaved, the text's end first."""
    said, heard = text("Hel", "lo."), sound(tone(0.5))
    return [said[0], heard[0], said[1], *heard[1:3], said[2], *heard[3:]] if "audio" in request.terminals else said


async def stream(server: Server, body: dict[str, Any], **headers: str) -> tuple[httpx.Response, list[str]]:
    async with server.http.stream("POST", URL, json={**body, "stream": True}, headers=headers) as response:
        lines = [line async for line in response.aiter_lines() if line]
    return response, lines


def chunks(lines: list[str]) -> list[dict[str, Any]]:
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1] if not line.startswith(":")]


async def test_an_answer_in_one_piece(serve: Serve) -> None:
    async with serve(lambda _: text("Hello", " there.", usage=Usage(12, 4, 2))) as server:
        response = await server.http.post(URL, json=ASK)
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "stub-voice"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello there.", "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert body["usage"]["prompt_tokens"] == 12
    assert body["usage"]["completion_tokens"] == 2
    assert body["usage"]["total_tokens"] == 14
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert server.stub.requests[0].terminals == ("text",), "a text request never asks for audio"


async def test_a_streamed_text(serve: Serve) -> None:
    async with serve() as server:
        response, lines = await stream(server, {**ASK, "stream_options": {"include_usage": True}})
    assert response.headers["content-type"].startswith("text/event-stream")
    got = chunks(lines)
    assert [c["choices"][0]["delta"] if c["choices"] else None for c in got] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hello"},
        {"content": " there."},
        {},
        None,
    ]
    assert len({(c["id"], c["created"], c["object"]) for c in got}) == 1
    assert [c["choices"][0]["finish_reason"] for c in got[:-1]] == [None, None, None, "stop"]
    assert all(c["usage"] is None for c in got[:-1])
    assert got[-1]["usage"]["total_tokens"] == 14


async def test_usage_is_left_out_unless_asked_for(serve: Serve) -> None:
    async with serve() as server:
        _, lines = await stream(server, ASK)
    assert all("usage" not in c for c in chunks(lines))
    assert all(c["choices"] for c in chunks(lines))


async def test_streamed_audio_is_whole_samples_in_order(serve: Serve) -> None:
    async with serve(spoken) as server:
        _, lines = await stream(server, {**AUDIO, "stream_options": {"include_usage": True}})
    got = chunks(lines)
    deltas = [c["choices"][0]["delta"] for c in got if c["choices"]]
    assert deltas[0]["role"] == "assistant"
    identity = deltas[0]["audio"]["id"]
    audio = [d["audio"] for d in deltas if "audio" in d]
    assert {a["id"] for a in audio} == {identity}
    assert "".join(a.get("transcript", "") for a in audio) == "Hello."
    pieces = [base64.b64decode(a["data"], validate=True) for a in audio if "data" in a]
    assert all(len(piece) % 2 == 0 for piece in pieces)
    heard = np.frombuffer(b"".join(pieces), dtype="<i2") / 32768
    assert np.abs(heard - tone(0.5)).max() <= 1 / 32768
    assert list(audio[-1]) == ["id", "expires_at"]
    assert isinstance(audio[-1]["expires_at"], int)
    assert deltas[-1] == {}
    # A token for each begun 50 ms of sound, beside the text's own.
    details = got[-1]["usage"]["completion_tokens_details"]
    assert details["audio_tokens"] == math.ceil(12000 / 24000 / 0.05)
    assert details["text_tokens"] == 2
    assert got[-1]["usage"]["completion_tokens"] == details["audio_tokens"] + 2


@pytest.mark.parametrize("format", ["wav", "mp3", "flac", "opus", "aac", "pcm16"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_audio_in_every_format(serve: Serve, format: str, streamed: bool) -> None:
    body = {**AUDIO, "audio": {"voice": {"id": "bert"}, "format": format}}
    async with serve(spoken) as server:
        if streamed:
            _, lines = await stream(server, body)
            audio = [c["choices"][0]["delta"].get("audio", {}) for c in chunks(lines) if c["choices"]]
            data = b"".join(base64.b64decode(a.get("data", ""), validate=True) for a in audio)
        else:
            message = (await server.http.post(URL, json=body)).json()["choices"][0]["message"]
            assert message["content"] is None
            assert set(message["audio"]) == {"id", "data", "expires_at", "transcript"}
            assert message["audio"]["transcript"] == "Hello."
            data = base64.b64decode(message["audio"]["data"], validate=True)
    assert server.stub.requests[0].voice.name == "bert"
    assert _seconds(data, format) == pytest.approx(0.5, abs=0.11)
    if format == "wav" and not streamed:
        with wave.open(io.BytesIO(data)) as file:
            assert file.getnframes() == 12000


def _seconds(data: bytes, format: str) -> float:
    """By FFmpeg, which was told the format."""
    if format == "pcm16":
        return len(data) / 48000
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(data), format={"opus": "ogg"}.get(format, format)) as file:
        return float(sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0)))


async def test_tool_calls(serve: Serve) -> None:
    script = calls(("weather", '{"city":"Oslo"}'), ("weather", '{"city":"Rome"}'))
    async with serve(lambda _: script) as server:
        body = (await server.http.post(URL, json={**ASK, "tools": [TOOL]})).json()
        _, lines = await stream(server, {**ASK, "tools": [TOOL], "tool_choice": "required"})
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": f"call_{n}", "type": "function", "function": {"name": "weather", "arguments": f'{{"city":"{city}"}}'}}
        for n, city in enumerate(("Oslo", "Rome"))
    ]
    deltas = [c["choices"][0]["delta"] for c in chunks(lines)]
    assert deltas[0]["content"] is None
    made = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert made[0] == {"index": 0, "id": "call_0", "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert all(set(m) == {"index", "function"} and set(m["function"]) == {"arguments"} for m in made if "id" not in m)
    for n, city in enumerate(("Oslo", "Rome")):
        assert "".join(m["function"]["arguments"] for m in made if m["index"] == n) == f'{{"city":"{city}"}}'
    assert [m["index"] for m in made] == sorted(m["index"] for m in made)


async def test_what_reaches_the_graph(serve: Serve) -> None:
    body = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "input_audio", "input_audio": {"data": "AAECAw", "format": "WAV"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID", "detail": "low"}},
            ]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "stop": "END", "seed": 7, "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 20, "n": 1,
        "stage_params": {"thinker": {"top_k": 3}}, "request_id": "mine.1", "user": "x", "metadata": {"a": "b"},
        "something_new": [1, 2], "stage_sampling": {"talker": {"temperature": 0.2, "seed": 8}},
    }  # fmt: skip
    async with serve() as server:
        response = await server.http.post(URL, json=body)
        assert response.status_code == 200, response.text
        assert response.headers["x-request-id"] == "mine.1"
        request = server.stub.requests[0]
    assert request.id == "mine.1"
    system, user, assistant, tool = request.messages
    assert system.parts == (TextPart("Be brief."),)
    assert isinstance(user.parts[1], AudioPart)
    assert (user.parts[1].data, user.parts[1].format) == (b"\x00\x01\x02\x03", "wav")
    assert isinstance(user.parts[2], ImagePart)
    assert (user.parts[2].data, user.parts[2].detail) == (b"\x01\x02\x03", "low")
    assert assistant.calls == (ToolCall("c1", "weather", "{}"),)
    assert (tool.call_id, tool.parts) == ("c1", (TextPart("sunny"),))
    assert (request.tool_choice.mode, request.tool_choice.name) == ("function", "weather")
    assert (request.response_format.kind, request.response_format.schema) == ("json_schema", {"type": "object"})
    assert request.sampling.stop == ("END",)
    assert (request.sampling.seed, request.sampling.temperature, request.sampling.max_tokens) == (7, 0.5, 20)
    assert request.stage_params == {"thinker": {"top_k": 3}}
    assert request.stage_sampling == {"talker": Sampling(temperature=0.2, seed=8)}


async def test_a_spoken_answer_can_be_referred_to_until_it_expires(serve: Serve) -> None:
    async with serve(spoken, audio_answer_s=100.0) as server:
        first = (await server.http.post(URL, json=AUDIO)).json()["choices"][0]["message"]["audio"]
        again = {"messages": [{"role": "assistant", "audio": {"id": first["id"]}}, {"role": "user", "content": "And?"}]}
        assert (await server.http.post(URL, json=again)).status_code == 200
        assert server.stub.requests[1].messages[0].parts == (TextPart("Hello."),)
        server.state.audio_answers._clock = lambda: first["expires_at"] + 1.0
        late = await server.http.post(URL, json=again)
        never = {"messages": [{"role": "assistant", "audio": {"id": "audio_x"}}]}
        unknown = await server.http.post(URL, json=never)
    for response in (late, unknown):
        assert response.status_code == 404
        assert response.json()["error"]["param"] == "messages[0].audio.id"


async def test_an_answer_without_words_is_empty_and_valid(serve: Serve) -> None:
    def silent(request: GenerateRequest) -> list[Step]:
        return [*text(), *([Event("audio", None, last=True, skipped=True)] if "audio" in request.terminals else [])]

    async with serve(silent) as server:
        message = (await server.http.post(URL, json=AUDIO)).json()["choices"][0]["message"]
        assert message["audio"]["data"] == ""
        assert message["audio"]["transcript"] == ""
        assert (await server.http.post(URL, json=ASK)).json()["choices"][0]["message"]["content"] == ""
        _, lines = await stream(server, AUDIO)
        assert chunks(lines)[-1]["choices"][0]["finish_reason"] == "stop"


async def test_an_error_before_the_stream_is_http_and_after_it_an_event(serve: Serve) -> None:
    broken = StageFailed("thinker", "the model gave up", code="model_error")

    def script(request: GenerateRequest) -> list[Step]:
        return [broken] if request.messages[0].parts == (TextPart("now"),) else [text("Hel")[0], broken]

    async with serve(script) as server:
        response, lines = await stream(server, {"messages": [{"role": "user", "content": "now"}]})
        assert response.status_code == 500
        assert json.loads("".join(lines))["error"]["message"] == "the model gave up"
        response, lines = await stream(server, ASK)
        assert response.status_code == 200
        assert json.loads(lines[-1].removeprefix("data: "))["error"] == {
            "message": "the model gave up", "type": "server_error", "param": None, "code": "model_error"
        }  # fmt: skip
        assert (await server.http.get("/health")).status_code == 200, "the server keeps serving"


async def test_timing_for_those_who_ask(serve: Serve) -> None:
    async with serve() as server:
        whole = await server.http.post(URL, json=ASK, headers={"X-Antiphon-Timing": "1"})
        for name in ("media;dur=2", "queue-thinker;dur=1", "first_token;dur=", "total;dur="):
            assert name in whole.headers["server-timing"]
        _, lines = await stream(server, ASK, **{"X-Antiphon-Timing": "1"})
        assert lines[-2].startswith(": timing ")
        assert "first_token;dur=" in lines[-2]
        assert "server-timing" not in (await server.http.post(URL, json=ASK)).headers


async def test_a_client_that_hangs_up_aborts_its_request(serve: Serve) -> None:
    never = asyncio.Event()

    def script(request: GenerateRequest) -> list[Step]:
        return [Event("text", TextDelta("Hel")), never] if request.sampling.seed == 1 else [never]

    async with serve(script, socket=True) as server:
        async with server.http.stream("POST", URL, json={**ASK, "stream": True, "seed": 1}) as response:
            await anext(response.aiter_lines())
            assert server.stub.live
        await server.settled()
        for streamed in (True, False):  # nothing was said yet: the answer is still awaited
            asking = server.http.post(URL, json={**ASK, "stream": streamed})
            await hang_up_when(lambda: bool(server.stub.live), asking)
            await server.settled()
        assert [g.reason for g in server.stub.generations] == ["client"] * 3
        assert server.state.metrics.aborts.labels("chat")._value.get() == 3


async def test_a_reader_of_sound_is_served_as_one_who_plays_at_once(serve: Serve) -> None:
    async with serve(spoken) as server:
        await stream(server, AUDIO)
        told = server.stub.generations[0].told
    assert server.stub.requests[0].listener == "confirmed"
    assert all(t["heard_ms"] is None for t in told), "nothing is held back for a download"


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"messages": [{"role": "alien", "content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "messages[0].content"),
        ({"messages": [7]}, 400, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, 400, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, 400, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, 400, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "!!", "format": "wav"}}]}]},
         400, "messages[0].content[0].input_audio.data"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]},
         400, "messages[0].content[0].input_audio.data"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "messages[0].content[0].input_audio"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/x"}}]}]},
         400, "messages[0].content[0].image_url.url"),
        ({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:;base64,AA"}}]}]},
         400, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "tool_call_id": "c9", "content": "x"}]}, 400, "messages[0].tool_call_id"),
        ({"n": 2}, 400, "n"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"functions": []}, 400, "functions"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"temperature": 3}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"stream": "yes"}, 400, "stream"),
        ({"stop": [""]}, 400, "stop"),
        ({"modalities": ["video"]}, 400, "modalities[0]"),
        ({"modalities": ["text", "audio"]}, 400, "audio"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "anna"}}, 400, "audio.format"),
        ({"modalities": ["text", "audio"], "audio": {"format": "wav"}}, 400, "audio.voice"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "nobody", "format": "wav"}}, 400, "audio.voice"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "anna", "format": "midi"}}, 400, "audio.format"),
        ({"tools": [{"type": "web_search", "function": {"name": "x"}}]}, 400, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, 400, "tools[0].function"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, 400, "tool_choice.function.name"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tool_choice": 3}, 400, "tool_choice"),
        ({"response_format": {"type": "xml"}}, 400, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema.schema"),
        ({"request_id": "a b\n"}, 400, "request_id"),
    ],
)  # fmt: skip
async def test_bad_fields_are_named(serve: Serve, change: dict[str, Any], status: int, param: str) -> None:
    async with serve() as server:
        response = await server.http.post(URL, json={**ASK, **change})
        assert response.status_code == status
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
        assert not server.stub.requests
        assert (await server.http.post(URL, json=ASK)).status_code == 200, "the server keeps serving"


async def test_a_pipeline_without_a_voice_says_so_by_name(serve: Serve) -> None:
    async with serve(info=TEXT_ONLY) as server:
        spoken_answer = await server.http.post(URL, json=AUDIO)
        assert (spoken_answer.status_code, spoken_answer.json()["error"]["code"]) == (400, "not_served_by_pipeline")
        assert "text-only" in spoken_answer.json()["error"]["message"]
        part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
        heard = await server.http.post(URL, json={"messages": [{"role": "user", "content": [part]}]})
        assert heard.json()["error"]["param"] == "messages[0].content[0].type"
        assert "takes no audio" in heard.json()["error"]["message"]


async def test_a_voice_is_named_in_any_case(serve: Serve) -> None:
    async with serve(spoken) as server:
        body = {**AUDIO, "audio": {"voice": "Bert", "format": "pcm16"}}
        assert (await server.http.post(URL, json=body)).status_code == 200
        assert server.stub.requests[0].voice.name == "bert"


async def test_openais_voices_mean_the_first_one(serve: Serve) -> None:
    async with serve(spoken) as server:
        for name in ("alloy", "default"):
            body = {**AUDIO, "audio": {"voice": name, "format": "pcm16"}}
            assert (await server.http.post(URL, json=body)).status_code == 200
        assert [r.voice.name for r in server.stub.requests] == ["default", "default"]
