"""The whole CPU voice behind the REST doors, asked by the official openai client: in one process, with the models apart, with
every stage apart. Loaded once for each."""

from __future__ import annotations

import asyncio
import base64
import difflib
import io
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from numpy.typing import NDArray

from antiphon.cli import backend
from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.realtime.app import create_app
from antiphon.realtime.settings import Settings
from antiphon.settings import ServerSettings

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real

SPLITS = ("one", "split", "apart")
SENTENCE = "The quick brown fox jumps over the lazy dog."
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module", params=SPLITS)
def app(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A running server; its state is ``app.state.antiphon``, its address ``app.state.url``."""
    from antiphon.pipelines.local.pipeline import DEFAULT_WEIGHTS

    try:
        for name in DEFAULT_WEIGHTS.values():
            weights.path(name)
    except WeightError as e:
        pytest.skip(str(e))
    app = create_app(Settings(), backend.client_factory(ServerSettings(processes=request.param)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not (server.started and app.state.antiphon.ready):
        failure = app.state.antiphon.failure
        if failure is not None or time.monotonic() > deadline:
            server.should_exit = True
            pytest.fail(f"the pipeline did not start: {failure}")
        time.sleep(0.05)
    app.state.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield app
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def ai(app: Any) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{app.state.url}/v1", api_key="dummy", max_retries=0, timeout=120) as client:
        yield client


def heard(data: bytes, format: str) -> NDArray[np.float32]:
    """24 kHz mono, by FFmpeg."""
    if format in ("pcm", "pcm16"):
        return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(data), format={"opus": "ogg"}.get(format, format)) as file:
        mixer = av.AudioResampler(format="flt", layout="mono", rate=24000)
        frames = [*file.decode(audio=0), None]
        return np.concatenate([p.to_ndarray().ravel() for f in frames for p in mixer.resample(f)], dtype=np.float32)


def alike(a: str, b: str) -> float:
    def words(text: str) -> list[str]:
        return "".join(c if c.isalnum() else " " for c in text.lower()).split()

    return difflib.SequenceMatcher(None, words(a), words(b)).ratio()


def level(x: NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(np.square(x, dtype=np.float64))) + 1e-9))


def test_speech_in_each_format_is_the_same_sound_and_is_understood(ai: Any) -> None:
    said = {f: ai.audio.speech.create(model="x", voice="default", input=SENTENCE, response_format=f).content for f in FORMATS}
    sounds = {f: heard(data, f) for f, data in said.items()}
    assert 1.5 < len(sounds["pcm"]) / 24000 < 5
    for format in FORMATS:
        assert len(sounds[format]) / len(sounds["pcm"]) == pytest.approx(1, abs=0.06)
        assert level(sounds[format]) - level(sounds["pcm"]) == pytest.approx(0, abs=0.8)
    for format in ("mp3", "opus", "wav"):  # read by the recogniser, through the door for files
        read = ai.audio.transcriptions.create(model="x", file=(f"a.{format}", said[format]), language="en")
        assert alike(read.text, SENTENCE) > 0.8, (format, read.text)


def test_a_faster_voice_is_shorter(ai: Any) -> None:
    def seconds(speed: float) -> float:
        create = ai.audio.speech.create
        return len(create(model="x", voice="default", input=SENTENCE, response_format="pcm", speed=speed).content) / 48000

    assert seconds(1.5) < 0.8 * seconds(1.0)


def test_text_of_only_signs_is_an_empty_valid_answer(ai: Any) -> None:
    for text in ("🎉🎉", "...?!"):
        assert ai.audio.speech.create(model="x", voice="default", input=text, response_format="pcm").content == b""
        mp3 = ai.audio.speech.create(model="x", voice="default", input=text).content
        assert level(heard(mp3, "mp3")) < -60


def test_a_recording_in_each_transcript_format(ai: Any, shared_audio: Path) -> None:
    said = "ask not what your country can do for you ask what you can do for your country"
    file = ("jfk.flac", (shared_audio / "jfk.flac").read_bytes())
    create = ai.audio.transcriptions.create
    assert said in _bare(create(model="x", file=file).text)
    verbose = create(
        model="x", file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"], language="en"
    )
    assert verbose.duration == pytest.approx(11.0, abs=0.05)
    assert verbose.language == "english"
    assert said in _bare("".join(segment.text for segment in verbose.segments))
    assert said in _bare(" ".join(word.word for word in verbose.words))
    times = [(word.start, word.end) for word in verbose.words]
    assert all(0 <= a <= b <= 11.1 for a, b in times)
    assert times == sorted(times)
    srt = create(model="x", file=file, response_format="srt")
    assert srt.startswith("1\n00:00:")
    assert " --> " in srt
    assert create(model="x", file=file, response_format="vtt").startswith("WEBVTT\n\n00:00:")
    events = list(create(model="x", file=file, stream=True))
    assert said in _bare("".join(e.delta for e in events if e.type == "transcript.text.delta"))
    assert said in _bare(events[-1].text)


def _bare(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def test_chat_whole_equals_chat_streamed_and_usage_adds_up(ai: Any) -> None:
    messages = [{"role": "user", "content": "Name three colours."}]
    options = {"model": "x", "messages": messages, "temperature": 0, "max_tokens": 40}
    whole = ai.chat.completions.create(**options)
    chunks = list(ai.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = whole.choices[0].message.content
    assert text
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    used = whole.usage
    assert (used.prompt_tokens, used.completion_tokens) == (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens)
    assert used.total_tokens == used.prompt_tokens + used.completion_tokens
    assert used.completion_tokens <= 40
    assert used.prompt_tokens_details.audio_tokens == 0


def test_a_spoken_question_gets_a_spoken_answer(ai: Any, shared_audio: Path) -> None:
    question = base64.b64encode((shared_audio / "dog-or-cat.mp3").read_bytes()).decode()
    part = {"type": "input_audio", "input_audio": {"data": question, "format": "mp3"}}
    stream = ai.chat.completions.create(
        model="x",
        messages=[{"role": "user", "content": [part]}],
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "pcm16"},
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    pcm, transcript, usage = b"", "", None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            audio = choice.delta.audio if choice.delta.audio else {}
            audio = audio if isinstance(audio, dict) else audio.model_dump()
            transcript += audio.get("transcript") or ""
            pcm += base64.b64decode(audio.get("data") or "")
    sound = heard(pcm, "pcm16")
    assert level(sound) > -40
    details = usage.completion_tokens_details
    assert details.audio_tokens == math.ceil(len(sound) / 24000 * 20)
    assert usage.completion_tokens == details.text_tokens + details.audio_tokens
    assert transcript.strip()
    read = ai.audio.transcriptions.create(model="x", file=("answer.pcm16", pcm), language="en")
    assert alike(read.text, transcript) > 0.6, (read.text, transcript)


def test_a_forced_tool_call_and_its_answer(ai: Any) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
    choice = {"type": "function", "function": {"name": "get_weather"}}
    made = ai.chat.completions.create(model="x", messages=messages, tools=[WEATHER], tool_choice=choice, temperature=0)
    assert made.choices[0].finish_reason == "tool_calls"
    call = made.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    messages += [made.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."}]
    answer = ai.chat.completions.create(model="x", messages=messages, tools=[WEATHER], max_tokens=40, temperature=0)
    assert answer.choices[0].message.content


def test_json_by_schema(ai: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    messages: Any = [{"role": "user", "content": "Anna is 30 years old. Answer as JSON."}]
    made = ai.chat.completions.create(model="x", messages=messages, response_format=form, max_tokens=60, temperature=0)
    told = json.loads(made.choices[0].message.content)
    assert set(told) == {"name", "age"}
    assert isinstance(told["age"], int)


def test_a_client_that_hangs_up_frees_every_lane(ai: Any, app: Any) -> None:
    state = app.state.antiphon
    stream = ai.chat.completions.create(
        model="x",
        messages=[{"role": "user", "content": "Tell me a very long story."}],
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "pcm16"},
        stream=True,
    )
    for n, _ in enumerate(stream):
        if n == 5:
            break
    stream.close()
    deadline = time.monotonic() + 10
    while state.client._backend.coordinator.live and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not state.client._backend.coordinator.live, "every lane gave its receipt"
    assert state.client.stats()["aborted"] >= 1


def test_many_at_once_say_what_each_says_alone(ai: Any, app: Any) -> None:
    questions = [f"Say the number {n} and nothing else." for n in ("one", "two", "three", "four")]

    async def ask(client: Any, question: str) -> str:
        options: Any = {"model": "x", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 16}
        return str((await client.chat.completions.create(**options)).choices[0].message.content)

    async def all_of_them() -> tuple[list[str], list[str]]:
        async with openai.AsyncOpenAI(base_url=f"{app.state.url}/v1", api_key="dummy", max_retries=0) as client:
            alone = [await ask(client, q) for q in questions]
            return alone, list(await asyncio.gather(*(ask(client, q) for q in questions)))

    alone, together = asyncio.run(all_of_them())
    assert together == alone
