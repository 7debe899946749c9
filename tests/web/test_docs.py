"""The dozen lines of docs/clients.md, run as they stand there, against a server on stubs."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.clients import environment, serving
from tests.realtime.conversing import voice as question
from tests.web.browser import loud_spans, page, say
from tests.web.test_page import until, voice

pytestmark = pytest.mark.real

DOCS = Path(__file__).parent.parent.parent / "docs" / "clients.md"


def snippet(language: str, port: int) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].replace("127.0.0.1:8000", f"127.0.0.1:{port}")


def with_question(folder: Path) -> Path:
    with wave.open(str(folder / "question.wav"), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes((question(0.8) * 32767).astype("<i2").tobytes())
    return folder


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def talker() -> object:
    with serving.server(serving.STUB) as port:
        yield port


def test_python(talker: int, tmp_path: Path) -> None:
    (with_question(tmp_path) / "talk.py").write_text(snippet("python", talker), encoding="utf-8")
    assert "half past ten" in run([sys.executable, "talk.py"], tmp_path)
    with wave.open(str(tmp_path / "answer.wav")) as answer:
        assert answer.getnframes() == 4 * 24_000


def test_node(talker: int, tmp_path: Path) -> None:
    packages = environment.NODE_FOLDER / "node_modules"
    if shutil.which("node") is None or not (packages / "ws").exists():
        pytest.skip("node and its package ws are not installed: make clients")
    (tmp_path / "node_modules").symlink_to(packages)
    (with_question(tmp_path) / "talk.mjs").write_text(snippet("js", talker), encoding="utf-8")
    assert "half past ten" in run(["node", "talk.mjs"], tmp_path)
    assert (tmp_path / "answer.pcm").stat().st_size == 4 * 48_000


async def test_browser(stub: int) -> None:
    async with page() as p:
        body = snippet("html", stub)
        await p.route(
            "**/snippet.html", lambda route: asyncio.ensure_future(route.fulfill(body=body, content_type="text/html"))
        )
        told: list[str] = []
        p.on("console", lambda message: told.append(message.text))
        await p.goto(f"http://127.0.0.1:{stub}/snippet.html")
        await p.click("#talk")
        async with asyncio.timeout(20):
            while "session.created" not in told:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await say(p, voice(0.8))
        await until(p, "window.heard.filter(([, level]) => level > 0.05).length > 60")
        assert "output_audio_buffer.started" in told
        assert np.any([end > begin for begin, end in loud_spans(await p.evaluate("window.heard"))])
