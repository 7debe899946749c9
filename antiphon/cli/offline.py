"""Commands that need no server: say, transcribe, chat, on the CPU voice in this process."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from antiphon.cli.backend import local_client
from antiphon.cli.console import fail
from antiphon.codecs.encode import encoder
from antiphon.pipelines.client import Client
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, TextDelta, TranscriptResult
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Message, TextPart, Transcription, Voice

Thinker = Annotated[str, typer.Option(help='"local", "gguf:PATH", "hf:REPO/FILE" or "openai:URL#MODEL".')]


def say(
    text: Annotated[str, typer.Argument(help='What to say; "-" reads standard input.')],
    out: Annotated[Path, typer.Option("--out", "-o", help="The audio file; its suffix names the format.")] = Path("speech.wav"),
    voice: str = "default",
    speed: float = 1.0,
) -> None:
    """Speak a text into a file (wav, mp3, opus, aac, flac, pcm)."""
    words = sys.stdin.read() if text == "-" else text
    encoding = encoder(out.suffix.lstrip(".") or "wav", AUDIO_RATE)
    request = GenerateRequest(
        id=_id(), task="speech", terminals=("audio",), text=words, voice=Voice(voice, speed), listener="none"
    )
    audio = asyncio.run(_audio(local_client(thinker="local"), request))
    if not audio.size:
        fail("there is nothing to say in that text")
    out.write_bytes(encoding.feed(audio) + encoding.finish())
    print(f"{out}: {audio.size / AUDIO_RATE:.1f} s")


def transcribe(
    file: Annotated[Path, typer.Argument(help="An audio file.")],
    language: Annotated[str, typer.Option(help="ISO 639-1; empty detects it.")] = "",
    prompt: str = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print segments and words as JSON.")] = False,
) -> None:
    """Print what is said in a file."""
    request = GenerateRequest(
        id=_id(),
        task="transcription",
        terminals=("transcript",),
        audio=AudioPart(_read(file), file.suffix.lstrip(".")),
        transcription=Transcription(language=language, prompt=prompt, words=as_json),
        listener="none",
    )
    result = asyncio.run(_transcript(local_client(), request))
    if as_json:
        segments = [{"start": s.start, "end": s.end, "text": s.text} for s in result.segments]
        words = [{"word": w.word, "start": w.start, "end": w.end} for w in result.words]
        print(json.dumps({"text": result.text, "language": result.language, "segments": segments, "words": words}))
    else:
        print(result.text)


def chat(
    question: Annotated[str | None, typer.Argument(help="One question; without it, a conversation.")] = None,
    instructions: str = "",
    thinker: Thinker = "local",
) -> None:
    """Ask the thinker in writing."""
    asyncio.run(_chat(local_client(thinker=thinker, text_only=True), question, instructions))


async def _chat(client: Client, question: str | None, instructions: str) -> None:
    history: list[Message] = [Message("system", (TextPart(instructions),))] if instructions else []
    async with client:
        while True:
            if question is None:
                try:
                    line = await asyncio.to_thread(input, "> " if sys.stdin.isatty() else "")
                except EOFError:
                    return
            else:
                line = question
            history.append(Message("user", (TextPart(line),)))
            request = GenerateRequest(
                id=_id(), task="chat", terminals=("text",), messages=tuple(history), conversation="cli", listener="none"
            )
            answer = ""
            async for event in client.generate(request):
                if isinstance(event.data, TextDelta):
                    answer += event.data.text
                    print(event.data.text, end="", flush=True)
            print()
            history.append(Message("assistant", (TextPart(answer),)))
            if question is not None:
                return


async def _audio(client: Client, request: GenerateRequest) -> NDArray[np.float32]:
    async with client:
        pieces = [e.data.pcm async for e in client.generate(request) if isinstance(e.data, AudioDelta)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


async def _transcript(client: Client, request: GenerateRequest) -> TranscriptResult:
    result = TranscriptResult("")
    async with client:
        async for event in client.generate(request):
            if isinstance(event.data, TranscriptResult):
                result = event.data
    return result


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", code=2)


def _id() -> str:
    return f"req_{uuid.uuid4().hex[:20]}"
