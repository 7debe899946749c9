"""The official openai Python client, unmodified, against the doors on a stub pipeline."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import pytest

from antiphon.pipelines.requests import GenerateRequest
from tests.realtime.rest.conftest import Serve, Server
from tests.realtime.rest.test_transcriptions import read
from tests.realtime.stub_client import Step, calls, sound, text, tone

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
HI: Any = [{"role": "user", "content": "Hi"}]


def script(request: GenerateRequest) -> list[Step]:
    if request.task == "transcription":
        return read(request)
    if request.task == "speech":
        return sound(tone(0.5))
    if request.tools:
        return calls(("weather", '{"city":"Oslo"}'))
    return text("Hello", " there.") + (sound(tone(0.5)) if "audio" in request.terminals else [])


def client(server: Server, **options: Any) -> Any:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="dummy", max_retries=0, **options)


async def test_chat(serve: Serve) -> None:
    async with serve(script, socket=True) as server, client(server) as ai:
        whole = await ai.chat.completions.create(model="x", messages=HI)
        assert whole.choices[0].message.content == "Hello there."
        assert whole.usage.total_tokens == 14
        stream = await ai.chat.completions.create(model="x", messages=HI, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello there."
        assert chunks[-1].usage.total_tokens == 14
        assert whole._request_id.startswith("req_")


async def test_chat_with_audio(serve: Serve) -> None:
    audio: Any = {"voice": "alloy", "format": "wav"}
    async with serve(script, socket=True) as server, client(server) as ai:
        whole = await ai.chat.completions.create(model="x", messages=HI, modalities=["text", "audio"], audio=audio)
        said = whole.choices[0].message.audio
        assert said.transcript == "Hello there."
        with wave.open(io.BytesIO(base64.b64decode(said.data))) as file:
            assert (file.getframerate(), file.getnframes()) == (24000, 12000)
        again = [*HI, {"role": "assistant", "audio": {"id": said.id}}, *HI]
        assert (await ai.chat.completions.create(model="x", messages=again)).choices[0].finish_reason == "stop"
        stream = await ai.chat.completions.create(
            model="x", messages=HI, modalities=["text", "audio"], audio={"voice": "alloy", "format": "pcm16"}, stream=True
        )
        deltas = [c.choices[0].delta.audio async for c in stream if c.choices and c.choices[0].delta.audio]
        pcm = b"".join(base64.b64decode(_get(d, "data") or "") for d in deltas)
        assert len(pcm) == 24000


def _get(delta: Any, name: str) -> Any:
    return delta.get(name) if isinstance(delta, dict) else getattr(delta, name, None)


async def test_tools_whole_and_gathered_by_the_clients_own_stream_helper(serve: Serve) -> None:
    async with serve(script, socket=True) as server, client(server) as ai:
        whole = await ai.chat.completions.create(model="x", messages=HI, tools=[TOOL])
        assert whole.choices[0].message.tool_calls[0].function.arguments == '{"city":"Oslo"}'
        async with ai.chat.completions.stream(model="x", messages=HI, tools=[TOOL]) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.tool_calls[0].function.name == "weather"
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"city":"Oslo"}'
        assert final.choices[0].finish_reason == "tool_calls"


async def test_speech(serve: Serve) -> None:
    async with serve(script, socket=True) as server, client(server) as ai:
        whole = await ai.audio.speech.create(model="tts-1", voice="alloy", input="Hi", response_format="wav")
        assert whole.content[:4] == b"RIFF"
        async with ai.audio.speech.with_streaming_response.create(
            model="tts-1", voice="alloy", input="Hi", response_format="pcm"
        ) as response:
            assert len(b"".join([piece async for piece in response.iter_bytes()])) == 24000


async def test_transcription_in_every_format(serve: Serve) -> None:
    async with serve(script, socket=True) as server, client(server) as ai:
        said = "Hello there. How are you?"
        file: Any = ("a.wav", b"sound")
        create = ai.audio.transcriptions.create
        assert (await create(model="whisper-1", file=file)).text == said
        assert (await create(model="whisper-1", file=file, response_format="text")).strip() == said
        assert (await create(model="whisper-1", file=file, response_format="srt")).startswith("1\n00:00:00,000")
        assert (await create(model="whisper-1", file=file, response_format="vtt")).startswith("WEBVTT")
        verbose = await create(
            model="whisper-1", file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"]
        )
        assert (verbose.language, verbose.duration, len(verbose.segments), verbose.words[0].word) == (
            "english",
            3661.5,
            2,
            "Hello",
        )
        stream = await create(model="gpt-4o-transcribe", file=file, stream=True)
        events = [event async for event in stream]
        assert "".join(e.delta for e in events if e.type == "transcript.text.delta").strip() == said
        assert events[-1].text == said
        assert (await ai.audio.translations.create(model="whisper-1", file=file)).text == said


async def test_errors_become_the_clients_own_kinds(serve: Serve) -> None:
    async with serve(script, socket=True, api_keys=("dummy",)) as server, client(server) as ai:
        with pytest.raises(openai.BadRequestError) as bad:
            await ai.chat.completions.create(model="x", messages=HI, n=2)
        assert (bad.value.param, bad.value.code) == ("n", "unsupported_value")
        with pytest.raises(openai.NotFoundError):
            await ai.models.retrieve("gpt-9")
        with pytest.raises(openai.AuthenticationError):
            await ai.with_options(api_key="wrong").models.list()
        assert [model.id async for model in ai.models.list()] == ["stub-voice", "stub-thinker", "stub-talker"]
