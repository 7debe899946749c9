"""``antiphon serve`` with two of each model process, as an operator asks for it: REST and realtime, a death, the end."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from websockets.asyncio.client import connect

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from tests.clients import serving
from tests.realtime.conversing import Talk, audio_of

pytestmark = pytest.mark.real

SENTENCE = "The quick brown fox jumps over the lazy dog."


def used(pid: int) -> float:
    """Seconds of CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def pids(health: dict[str, Any]) -> dict[str, int]:
    return {name: int(p["place"].split()[1]) for name, p in health["processes"].items() if "place" in p}


async def say_and_read(http: httpx.AsyncClient) -> str:
    """Text to speech and back to text."""
    body = {"model": "x", "voice": "default", "input": SENTENCE, "response_format": "wav"}
    said = (await http.post("/v1/audio/speech", json=body)).raise_for_status().content
    assert 1.5 < soundfile.info(io.BytesIO(said)).duration < 5
    form = {"model": "x", "language": "en"}
    read = await http.post("/v1/audio/transcriptions", files={"file": ("a.wav", said)}, data=form)
    return str(read.raise_for_status().json()["text"]).lower()


async def turn(talk: Talk) -> str:
    """The status of one spoken answer."""
    await talk.ask("Say hello.")
    return str((await talk.until("response.done", within=60))["response"]["status"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    try:
        for name in ("whisper-base-ct2", "hibari-heart", "silero-vad"):
            weights.path(name)
    except WeightError as error:
        pytest.skip(str(error))
    file = tmp_path / "antiphon.toml"
    file.write_text("[process.model]\nstart_limit_s = 120.0\n[process.model.env]\nANTIPHON_TEST = 'told'\n")
    command = [*serving.REAL, "--replicas", "2", "--config", str(file)]
    with serving.started(command) as found:
        yield found


async def test_two_of_each_model_process(served: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = served
    base = f"http://127.0.0.1:{port}"
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    async with (
        httpx.AsyncClient(base_url=base, timeout=60) as http,
        connect(url, max_size=None, compression=None) as one,
        connect(url, max_size=None, compression=None) as two,
    ):
        at = pids((await http.get("/health")).raise_for_status().json())
        assert at.keys() == {"model.0", "model.1"}
        for pid in at.values():
            assert b"ANTIPHON_TEST=told" in environment(pid)
        before = {name: used(pid) for name, pid in at.items()}
        async with asyncio.timeout(120):
            # A request goes where least is to be done: both work once several are there at a time, which a busy machine delays.
            while not all(used(pid) - before[name] > 0.2 for name, pid in at.items()):
                for text in await asyncio.gather(*(say_and_read(http) for _ in range(4))):
                    assert "brown fox" in text
        talks = (Talk(one), Talk(two))
        for talk in talks:
            await talk.say_hello(output_modalities=["audio"], max_output_tokens=12)
        for _ in range(2):
            assert set(await asyncio.gather(*map(turn, talks))) <= {"completed", "incomplete"}
        assert all(len(audio_of(talk.events)) > 24_000 for talk in talks)

        os.kill(at["model.0"], signal.SIGKILL)
        while "restarting" not in (states := await replicas(http)):
            assert "stopped" not in states
            await asyncio.sleep(0.01)
        assert set(await asyncio.gather(*map(turn, talks))) <= {"completed", "incomplete"}, "the other serves them all"
        assert (await http.get("/health")).status_code == 200
        async with asyncio.timeout(60):
            while await replicas(http) != ["ready", "ready"]:  # noqa: ASYNC110 - it is polled as an operator would
                await asyncio.sleep(0.1)
        at = pids((await http.get("/health")).json())
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.wait, 30)
    assert not [pid for pid in at.values() if alive(pid)], "nobody stays"


async def replicas(http: httpx.AsyncClient) -> list[str]:
    return [p["state"] for p in (await http.get("/health")).json()["processes"].values()]
