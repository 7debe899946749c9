"""Servers for the page, and the reasons for which a browser test is skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from tests.clients import serving
from tests.web import browser

AXE = Path(__file__).parent.parent.parent / ".cache" / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session", autouse=True)
def a_browser() -> None:
    pytest.importorskip("playwright", reason="playwright is not installed: pip install 'antiphon[dev]'")
    if browser.chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def stub() -> Iterator[int]:
    """The port of a server on stubs."""
    with serving.server([*STUB, "0"]) as port:
        yield port


STUB = [serving.sys.executable, "-m", "tests.web.stub_page"]


@pytest.fixture(scope="session")
def axe() -> Path:
    """axe-core's script, installed once into the tests' own cache."""
    if not AXE.exists():
        folder = AXE.parent.parent.parent
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), "axe-core@4"]
        try:
            subprocess.run(install, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"axe-core cannot be installed here: {error}")
    return AXE


@pytest.fixture(scope="module")
def question() -> np.ndarray:
    """A human's spoken question, 48 kHz float32; skips where the recordings are absent."""
    file = serving.SHARED / "audio" / "dog-or-cat.mp3"
    if not file.exists():
        pytest.skip("recordings are absent: audio not found beside the checkout")
    samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    return soxr.resample(samples.mean(1), rate, browser.MICROPHONE_RATE)
