"""Hours of talk, compressed: what a long session holds does not grow with its length."""

from __future__ import annotations

import asyncio
import base64
import gc
from pathlib import Path

import numpy as np
import pytest

from antiphon.session.features import Features
from tests.realtime.conversing import Talk, hush, open_descriptors, serving, talking, voice
from tests.realtime.rest.conftest import until
from tests.realtime.stubs import Script, StubClient


def rss_kb() -> int:
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


async def say_turns(talk: Talk, client: StubClient, count: int) -> None:
    """Turns of 8 s of speech and 1 s of silence, in appends of 100 ms, each answered before the next begins."""
    pcm = (np.concatenate((voice(8.0), hush(1.0))) * 32767).astype("<i2")
    pieces = [base64.b64encode(pcm[at : at + 2400].tobytes()).decode() for at in range(0, len(pcm), 2400)]
    for _ in range(count):
        for piece in pieces:
            await talk.send("input_audio_buffer.append", audio=piece)
        await talk.until("response.done", within=30.0)
        talk.events.clear()
        talk._read_to = 0
        client.works.clear()  # the stub keeps every request, with the speech in it


@pytest.mark.parametrize("hours", [0.05, pytest.param(2.0, marks=pytest.mark.slow)])
async def test_a_long_talk_leaves_everything_where_it_was(hours: float) -> None:
    turns = round(hours * 3600 / 9)
    client = StubClient(Script(audio_s=0.2))
    features = Features(window_s=float("inf"), kept_audio_s=60.0, max_seconds=1e9)
    async with serving(client, features=features) as running, talking(running) as talk:
        await talk.say_hello(audio={"input": {"transcription": {"model": "whisper-1"}}}, truncation="auto")
        await say_turns(talk, client, max(4, turns // 4))
        gc.collect()
        tasks, descriptors, memory = len(asyncio.all_tasks()), open_descriptors(), rss_kb()
        (connection,) = running.doors.sessions._open.values()
        await say_turns(talk, client, turns - turns // 4)
        gc.collect()
        shell = connection._shell  # type: ignore[attr-defined]
        assert shell.store.bytes < 12_000_000  # a minute of speech is kept, and the turn that was just heard
        assert len(shell._works) == 0 and len(shell._tellers) == 0 and not shell._inbox
        await until(lambda: len(asyncio.all_tasks()) <= tasks and open_descriptors() <= descriptors)
        assert rss_kb() - memory < 40_000
        assert connection._outbox.unsent < 1_000  # type: ignore[attr-defined]
