"""The remote transcriber and talker against a fake OpenAI server."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import soundfile

from antiphon.pipelines.engines.openai.talker import OpenAITalker
from antiphon.pipelines.engines.openai.transcriber import OpenAITranscriber
from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.local.prepared import Clip, Prepared, Transcripts
from antiphon.pipelines.local.spoken import SpokenClause
from antiphon.pipelines.outputs import AudioDelta, AudioResult, Segment, TranscriptDelta, Word
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, Transcription, Voice
from antiphon.pipelines.stage import Chunk, Request
from tests.mind import fake_openai as fake
from tests.mind.fake_openai import FakeOpenAI


async def stream(*data: Any) -> AsyncIterator[Chunk]:
    for i, item in enumerate(data):
        yield Chunk("segmenter", i, item)


def answered(body: dict[str, Any]) -> Any:
    return fake.status(200, body)


TONE = (0.5 * np.sin(np.arange(8000) / 5)).astype(np.float32)


def reading(**options: Any) -> Prepared:
    request = GenerateRequest(
        id="r", task="transcription", terminals=("transcript",), audio=AudioPart(b"x"), transcription=Transcription(**options)
    )
    return Prepared(request, (Clip("k", TONE),))


async def transcribe(stage: OpenAITranscriber, prepared: Prepared) -> list[Any]:
    request = Request(id="r", terminals=("transcript",), body=prepared.request)
    try:
        return [o.data async for o in stage.run(request, prepared, stream())]
    finally:
        await stage.shut_down()


async def test_a_clip_is_sent_as_wav_and_read_with_words() -> None:
    answer = {
        "text": " Hello there. ", "language": "english",
        "segments": [{"start": 0, "end": 0.5, "text": " Hello there.", "tokens": [1, 2], "avg_logprob": -0.2}],
        "words": [{"word": "Hello", "start": 0.0, "end": 0.2}],
    }  # fmt: skip
    async with FakeOpenAI([answered(answer)]) as server:
        said = await transcribe(
            OpenAITranscriber(server.url, "w"), reading(language="en", prompt="names", keywords=("Ann",), words=True)
        )
    assert said[0] == TranscriptDelta("Hello there.")
    assert isinstance(said[1], Transcripts)
    (result,) = said[1].results
    assert (result.text, result.language, result.duration) == ("Hello there.", "en", 0.5)
    assert result.segments == (Segment(0.0, 0.5, " Hello there.", (1, 2), -0.2),) and result.words == (Word("Hello", 0.0, 0.2),)
    sent = server.asked[0]
    assert sent.path == "/v1/audio/transcriptions"
    assert b"names, Ann" in sent.body and b"verbose_json" in sent.body
    file = sent.body[sent.body.index(b"RIFF") :]
    pcm, rate = soundfile.read(io.BytesIO(file), frames=len(TONE), dtype="float32")
    assert rate == 16_000 and np.abs(pcm - TONE).max() < 1e-4


async def test_a_server_without_verbose_json_is_asked_for_json() -> None:
    async with FakeOpenAI([fake.status(400), answered({"text": "Hi"})]) as server:
        said = await transcribe(OpenAITranscriber(server.url, "w"), reading(translate=True))
    assert said[-1].results[0].text == "Hi"
    assert [a.path for a in server.asked] == ["/v1/audio/translations"] * 2
    assert re.search(rb'response_format"\r\n\r\njson\r\n', server.asked[1].body)


@pytest.mark.parametrize("fault", [fake.status(503), fake.drop_at_once, fake.garbage, answered({"text": 3})])
async def test_a_transcriber_that_fails_twice_fails_the_request(fault: Any) -> None:
    async with FakeOpenAI([fault]) as server:
        with pytest.raises(StageFailed, match="transcriber"):
            await transcribe(OpenAITranscriber(server.url, "w"), reading())
    assert len(server.asked) == 2


def heard(keys: tuple[str, ...]) -> Prepared:
    """A conversation's request: all that was said in it, again."""
    parts = tuple(AudioPart(b"x", key=key) for key in keys)
    chat = GenerateRequest(id="r", task="chat", terminals=("text",), messages=(Message("user", parts),))
    return Prepared(chat, tuple(Clip(key, TONE) for key in keys))


async def texts(stage: OpenAITranscriber, *keys: str) -> list[str]:
    prepared = heard(keys)
    request = Request(id="r", terminals=("text",), body=prepared.request)
    said = [o.data async for o in stage.run(request, prepared, stream())]
    return [result.text for result in said[-1].results]


async def test_a_talk_s_turns_are_read_once_and_not_again_for_every_answer() -> None:
    answers = [answered({"text": f"turn {n}"}) for n in range(3)]
    async with FakeOpenAI([*answers, fake.status(500)]) as server:
        stage = OpenAITranscriber(server.url, "w")
        for n in range(3):
            assert await texts(stage, *"abc"[: n + 1]) == [f"turn {i}" for i in range(n + 1)]
        await stage.shut_down()
    assert len(server.asked) == 3


async def test_who_asks_meanwhile_waits_and_takes_over_when_the_first_goes() -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slowly(c: fake.Connection) -> None:
        asked.set()
        await gate.wait()
        await answered({"text": "late"})(c)

    async with FakeOpenAI([slowly, answered({"text": "again"})]) as server:
        stage = OpenAITranscriber(server.url, "w")
        first, second, third = (asyncio.create_task(texts(stage, "a")) for _ in range(3))
        await asked.wait()
        await asyncio.sleep(0.02)
        assert len(server.asked) == 1, "one run for three"
        first.cancel()
        assert await second == await third == ["again"]
        gate.set()
        await asyncio.gather(first, return_exceptions=True)
        await stage.shut_down()
    assert len(server.asked) == 2


PCM = (np.arange(-900, 900, dtype=np.int16) * 30).astype("<i2")


async def pcm_in_odd_pieces(c: fake.Connection) -> None:
    await c.head(kind="audio/pcm")
    data = PCM.tobytes()
    for i in range(0, len(data), 701):
        await c.write(data[i : i + 701])
        await asyncio.sleep(0)


def speech(**voice: Any) -> Request:
    body = GenerateRequest(id="r", task="speech", terminals=("audio",), text="x", voice=Voice(**voice))
    return Request(id="r", terminals=("audio",), body=body)


CLAUSES = (
    SpokenClause("Hello there.", 0, 12, (5, 12), gap_ms=10.0),
    SpokenClause("Bye.", 13, 17, (17,), gap_ms=10.0),
)


async def test_clauses_are_said_in_order_with_marks_and_pauses() -> None:
    async with FakeOpenAI([pcm_in_odd_pieces]) as server:
        talker = OpenAITalker(server.url, "v", "nova")
        said = [o async for o in talker.run(speech(speed=2.0), None, stream(*CLAUSES))]
        await talker.shut_down()
    audio = [o.data for o in said if isinstance(o.data, AudioDelta)]
    whole = np.concatenate([a.pcm for a in audio])
    pause = np.zeros(120, np.float32)  # 10 ms at twice the speed
    np.testing.assert_allclose(whole, np.concatenate([PCM / 32768, pause, PCM / 32768]), atol=1e-7)
    assert said[-1].data == AudioResult(2 * len(PCM) + 120) and said[-1].result
    assert sum(o.span_ms for o in said) == pytest.approx(1000 * len(whole) / 24_000)
    marks = [m for a in audio for m in a.marks]
    assert [m.text_offset for m in marks] == sorted(m.text_offset for m in marks)
    assert (len(PCM), 12) in [(m.sample, m.text_offset) for m in marks] and marks[-1].text_offset == 17
    assert not any(a.exact for a in audio)
    sent = json.loads(server.asked[0].body)
    assert sent == {"model": "v", "input": "Hello there.", "voice": "nova", "response_format": "pcm", "speed": 2.0}


async def test_a_voice_that_fails_at_first_is_tried_again_and_one_that_breaks_off_is_not() -> None:
    async def breaks_off(c: fake.Connection) -> None:
        await c.head(kind="audio/pcm", extra="Content-Length: 9000\r\n")
        await c.write(PCM.tobytes())

    async with FakeOpenAI([fake.status(500), pcm_in_odd_pieces, breaks_off]) as server:
        talker = OpenAITalker(server.url, "v")
        heard = []
        with pytest.raises(StageFailed, match="talker"):
            async for output in talker.run(speech(), None, stream(*CLAUSES)):
                heard.append(output)  # noqa: PERF401 - what came before the failure counts
        await talker.shut_down()
    assert len(server.asked) == 3 and heard


def sent_as(data: bytes, kind: str) -> Callable[[fake.Connection], Awaitable[None]]:
    async def sends(c: fake.Connection) -> None:
        await c.head(kind=kind)
        for at in range(0, len(data), 41):
            await c.write(data[at : at + 41])

    return sends


def tone(rate: int, kind: str, subtype: str | None = None) -> bytes:
    """A second of 440 Hz as a file."""
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate), rate, format=kind, subtype=subtype)
    return file.getvalue()


async def heard_of(data: bytes, kind: str) -> np.ndarray:
    async with FakeOpenAI([sent_as(data, kind)]) as server:
        talker = OpenAITalker(server.url, "v")
        try:
            said = [o async for o in talker.run(speech(), None, stream(CLAUSES[0]))]
        finally:
            await talker.shut_down()
    return np.concatenate([o.data.pcm for o in said if isinstance(o.data, AudioDelta)])


@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000])
async def test_a_wav_instead_of_pcm_is_played_without_its_header_at_its_own_pitch(rate: int) -> None:
    wav = tone(rate, "WAV", "PCM_16")
    whole = await heard_of(wav + b"LIST\x08\x00\x00\x00nonsense", "audio/wav")
    streamed = await heard_of(wav[:40] + b"\xff\xff\xff\xff" + wav[44:], "audio/pcm")
    expected = 0.3 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)
    for samples in (whole, streamed):
        assert abs(len(samples) - 24_000) <= 1
        assert np.abs(samples[100:-100] - expected[100 : len(samples) - 100]).max() < 0.003
        assert np.abs(samples).max() < 0.32, "a header would be a pop of 0.85"


NO_SPEECH: list[tuple[bytes, str, str]] = [
    (tone(24_000, "MP3"), "audio/mpeg", "mp3"),
    (tone(24_000, "OGG", "OPUS"), "audio/pcm", "ogg"),
    (tone(24_000, "FLAC"), "application/octet-stream", "flac"),
    (tone(24_000, "WAV", "FLOAT"), "audio/wav", "a WAV of 1 channels of 32 bits"),
    (tone(24_000, "WAV", "PCM_16")[:30], "audio/wav", "a broken WAV"),
    (b'{"error": {"message": "no such voice"}}', "application/json", "application/json"),
    (b"<html>", "text/html; charset=utf-8", "text/html"),
]


@pytest.mark.parametrize(("data", "kind", "what"), NO_SPEECH, ids=[what for _, _, what in NO_SPEECH])
async def test_what_is_no_pcm_is_named_instead_of_played_as_noise(data: bytes, kind: str, what: str) -> None:
    with pytest.raises(StageFailed, match=f"the remote talker sent {what};"):
        await heard_of(data, kind)


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/mpeg", "application/octet-stream", ""])
async def test_pcm_is_pcm_whatever_it_is_called_and_however_short(kind: str) -> None:
    quiet = np.array([-1, 18, -2, 3] * 50, "<i2")  # its first bytes could be those of an MP3 frame
    if kind != "audio/mpeg":
        assert np.array_equal(await heard_of(quiet.tobytes(), kind), quiet / 32768)
    assert np.array_equal(await heard_of(PCM[:5].tobytes(), kind), PCM[:5] / 32768)
