"""``antiphon talk``: files against a server on stubs, and a sound card that is a stand-in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from antiphon.cli.talk import Devices, Files, converse
from antiphon.realtime.webrtc.speech import FADE, FRAME
from tests.clients import serving
from tests.realtime import conversing
from tests.realtime.stubs import Script, StubClient

SESSION = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}


def antiphon(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "antiphon", "talk", *arguments], capture_output=True, text=True, timeout=90)


async def test_a_file_is_answered_by_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    files = Files(conversing.voice(0.8))
    async with conversing.serving(StubClient(Script(audio_s=1.0))) as running:
        await converse(running.http, "", dict(SESSION), files, within_s=20)
    answer = np.concatenate(files.answer)
    assert len(answer) == 24_000
    assert abs(np.sqrt(np.mean(answer**2)) - 0.4 / np.sqrt(2)) < 0.01  # the stub's tone
    assert "you:      what time is it now" in capsys.readouterr().out


def test_the_command_and_its_faults(tmp_path: Path) -> None:
    question = tmp_path / "question.wav"
    soundfile.write(question, conversing.voice(0.8), 24_000)
    answer = tmp_path / "answer.wav"
    with serving.server(serving.STUB) as port:
        done = antiphon("--url", f"http://127.0.0.1:{port}", "--file", str(question), "--out", str(answer))
        assert done.returncode == 0, done.stderr
        assert soundfile.info(answer).samplerate == 24_000 and soundfile.info(answer).duration > 3
        missing = antiphon("--url", f"http://127.0.0.1:{port}", "--file", "nowhere.wav")
        assert missing.returncode == 2 and "nowhere.wav" in missing.stderr
    nobody = antiphon("--url", "http://127.0.0.1:9", "--file", str(question))
    assert nobody.returncode == 1 and "antiphon serve" in nobody.stderr and "Traceback" not in nobody.stderr


class StandInStream:
    """PortAudio's place: the test turns the crank."""

    made: ClassVar[list[StandInStream]] = []

    def __init__(self, *, callback: Callable[..., None], **_: Any) -> None:
        self.callback = callback
        StandInStream.made.append(self)

    def start(self) -> None: ...

    def close(self) -> None: ...

    def turn(self, heard: np.ndarray) -> np.ndarray:
        said = np.ones((FRAME, 1), np.float32)
        thread = threading.Thread(target=self.callback, args=(heard.reshape(-1, 1), said, FRAME, None, None))
        thread.start()
        thread.join()
        return said[:, 0]


async def test_the_sound_card_plays_in_order_and_says_what_was_heard() -> None:
    class SoundDevice:
        Stream = StandInStream

    with Devices(SoundDevice()) as devices:
        stream = StandInStream.made[-1]
        waiting = asyncio.create_task(devices.frame())
        await asyncio.sleep(0)
        tone = np.arange(1, 3 * FRAME + 1, dtype=np.float32)
        devices.play("a", tone[:700])
        devices.play("a", tone[700:])
        assert np.array_equal(stream.turn(np.full(FRAME, 0.5, np.float32)), tone[:FRAME])
        assert np.array_equal(await waiting, np.full(FRAME, 0.5, np.float32))
        stream.turn(np.zeros(FRAME, np.float32))
        assert devices.cut() == ("a", 40)
        assert devices.cut() is None
        faded = stream.turn(np.zeros(FRAME, np.float32))
        assert faded[0] and not faded[FADE:].any(), "a hard end clicks"
        assert not stream.turn(np.zeros(FRAME, np.float32)).any()
        devices.play("b", tone)
        assert devices.cut() == ("b", 0), "nothing of it had been heard yet"
        for _ in range(3 * Devices.HELD):
            stream.turn(np.zeros(FRAME, np.float32))
        await asyncio.sleep(0.05)
        assert devices._frames.qsize() == Devices.HELD  # a network that stands still costs no memory
