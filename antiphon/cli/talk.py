"""``antiphon talk``: speak with a running server from a terminal, by microphone and loudspeaker or from file to file."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from antiphon.cli.console import fail
from antiphon.codecs.errors import CodecError
from antiphon.codecs.pcm import from_s16, to_s16
from antiphon.realtime.webrtc.speech import FRAME, Speech
from antiphon.session.events import Play

RATE = 24_000
PATIENCE_S = 120.0
Samples = NDArray[np.float32]


class Sound(Protocol):
    """What talks and listens on this side: a microphone and a loudspeaker, or two files. 24 kHz float32 mono."""

    async def frame(self) -> Samples:
        """The next 20 ms of the user, at their time."""

    def play(self, item_id: str, samples: Samples) -> None: ...

    def cut(self) -> tuple[str, int] | None:
        """Fall silent now: the item that was being heard, and how many ms of it had been."""

    def finished(self, status: str) -> bool:
        """A response is over; True ends the talk."""


def talk(
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:8000",
    file: Annotated[Path | None, typer.Option(help="A spoken question instead of the microphone.")] = None,
    out: Annotated[Path, typer.Option(help="Where the spoken answer to --file goes.")] = Path("answer.wav"),
    key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY", help="The server's API key, if it asks for one.")] = "",
    voice: Annotated[str, typer.Option(help="A voice of the server.")] = "",
    instructions: Annotated[str, typer.Option(help="How to answer.")] = "",
) -> None:
    """Talk to a running server (start one with: antiphon serve). Ctrl-C hangs up."""
    session: dict[str, Any] = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    if voice:
        session["audio"]["output"] = {"voice": voice}
    if instructions:
        session["instructions"] = instructions
    if file is None:
        with _devices() as sound:
            print("speak when you like; interrupt when you like (headphones keep it from hearing itself); Ctrl-C hangs up")
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(converse(url, key, session, sound))
        return
    files = Files(_read(file))
    asyncio.run(converse(url, key, session, files, within_s=PATIENCE_S + len(files.question) / RATE))
    if not files.answer:
        fail("the server gave no spoken answer")
    import soundfile

    answer = np.concatenate(files.answer)
    soundfile.write(out, answer, RATE, subtype="PCM_16")
    print(f"{out}: {len(answer) / RATE:.1f} s of speech")


def _read(file: Path) -> Samples:
    from antiphon.codecs.media import decode

    try:
        return decode(file.read_bytes(), RATE)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", code=2)
    except CodecError as error:
        fail(f"{file}: {error}", code=2)


async def converse(url: str, key: str, session: dict[str, Any], sound: Sound, within_s: float | None = None) -> None:
    """One conversation over /v1/realtime until ``sound`` has had enough, the server hangs up or the time is over."""
    address = url.replace("http", "ws", 1).rstrip("/") + "/v1/realtime?model=antiphon"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with connect(address, additional_headers=headers, max_size=None) as socket, asyncio.timeout(within_s):
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            speaking = asyncio.create_task(_speak(socket, sound))
            try:
                await _listen(socket, sound)
            finally:
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)
    except TimeoutError:
        fail(f"no answer within {within_s:.0f} s")
    except (OSError, WebSocketException) as error:
        fail(f"no conversation with {url} ({error}); is it running? start one with: antiphon serve")


async def _speak(socket: ClientConnection, sound: Sound) -> None:
    while True:
        audio = base64.b64encode(to_s16(await sound.frame())).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


async def _listen(socket: ClientConnection, sound: Sound) -> None:
    async for message in socket:
        event = json.loads(message)
        match event["type"]:
            case "input_audio_buffer.speech_started":
                if heard := sound.cut():
                    item, ms = heard
                    cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": ms}
                    await socket.send(json.dumps(cut))
                    print(" -- (cut)")
            case "conversation.item.input_audio_transcription.completed":
                print(f"\nyou:      {event['transcript'].strip()}")
            case "response.output_audio_transcript.done":
                print(f"antiphon: {event['transcript'].strip()}", flush=True)
            case "response.output_audio.delta":
                sound.play(event["item_id"], from_s16(base64.b64decode(event["delta"])))
            case "response.done":
                if sound.finished(event["response"]["status"]):
                    return
            case "error":
                fail(f"the server said: {event['error']['message']}")


class Files:
    """A question at real-time pace and silence behind it; the answer is kept."""

    def __init__(self, question: Samples) -> None:
        self.question = question
        self.answer: list[Samples] = []
        self._at = 0
        self._began: float | None = None

    async def frame(self) -> Samples:
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        await asyncio.sleep(max(0.0, self._began + self._at / RATE - now))
        frame = np.zeros(FRAME, np.float32)
        piece = self.question[self._at : self._at + FRAME]
        frame[: len(piece)] = piece
        self._at += FRAME
        return frame

    def play(self, item_id: str, samples: Samples) -> None:
        self.answer.append(samples)

    def cut(self) -> None:
        """The question went on: what was answered to its beginning was not heard."""
        self.answer.clear()

    def finished(self, status: str) -> bool:
        if status in ("failed", "incomplete") and not self.answer:
            fail(f"the response ended {status}")
        return self._at >= len(self.question) and status != "cancelled"


def _devices() -> contextlib.AbstractContextManager[Sound]:
    """The default microphone and loudspeaker; fails with what is missing."""
    try:
        import sounddevice
    except ImportError:
        fail("microphone and loudspeaker need sounddevice: pip install 'antiphon[talk]', or use --file question.wav")
    except OSError as error:  # its C library
        fail(f"no sound on this machine ({error}); apt-get install libportaudio2, or use --file question.wav")
    try:
        sounddevice.check_input_settings(samplerate=RATE, channels=1, dtype="float32")
        sounddevice.check_output_settings(samplerate=RATE, channels=1, dtype="float32")
    except (sounddevice.PortAudioError, ValueError) as error:
        fail(f"no microphone and loudspeaker here ({error}); use --file question.wav")
    return Devices(sounddevice)


class Devices:
    """The sound card, by PortAudio's own thread. At most ``HELD`` frames of the microphone wait for the network."""

    HELD = 100

    def __init__(self, sounddevice: Any) -> None:
        self._lock = threading.Lock()
        self._speech = Speech()
        self._heard = ("", 0)
        self._frames: asyncio.Queue[Samples] = asyncio.Queue(self.HELD)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stream = sounddevice.Stream(
            samplerate=RATE, channels=1, dtype="float32", blocksize=FRAME, callback=self._turn, latency="low"
        )

    def __enter__(self) -> Devices:
        self._stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    async def frame(self) -> Samples:
        self._loop = asyncio.get_running_loop()
        return await self._frames.get()

    def play(self, item_id: str, samples: Samples) -> None:
        with self._lock:
            self._speech.play(Play("", item_id, samples, len(samples)))

    def cut(self) -> tuple[str, int] | None:
        with self._lock:
            item, (last, played) = self._speech.next_item, self._heard
            self._speech.clear()
        if not item:
            return None
        return item, played * 1000 // RATE if item == last else 0  # else it had not begun

    def finished(self, status: str) -> bool:
        return False

    def _turn(self, heard: Any, said: Any, frames: int, *_: object) -> None:
        """PortAudio's callback: one block in, one block out."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._take, heard[:, 0].copy())
        with self._lock:
            samples, played = self._speech.frame()
            self._heard = played[-1] if played else self._heard
        said[:, 0] = samples

    def _take(self, samples: Samples) -> None:
        if self._frames.full():
            self._frames.get_nowait()  # the network stands still: the oldest sound is of no use to anyone
        self._frames.put_nowait(samples)
