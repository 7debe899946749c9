"""@openai/agents-realtime makes a call from Node. Its media stack gets an environment of its own beside the other clients'."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.clients import serving
from tests.clients.environment import CACHE, HERE

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PACKAGES = ("@openai/agents-realtime@0.20.0", "@roamhq/wrtc@0.10.0", "zod")
CHECKS = ["connect", "text_turn", "spoken_turn", "barge_in", "hang_up"]


@pytest.fixture(scope="module")
def node() -> Path:
    folder = CACHE / "webrtc"
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if not (folder / "node_modules" / "@roamhq" / "wrtc").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), *PACKAGES]
        try:
            subprocess.run(install, check=True, capture_output=True, timeout=600)
        except subprocess.SubprocessError as error:
            pytest.skip(f"the client cannot be installed here: {error}")
    shutil.copy(HERE / "webrtc_agents.mjs", folder)
    return folder


def test_it_talks_and_interrupts(node: Path) -> None:
    try:
        with serving.server(serving.REAL) as port:
            http = f"http://127.0.0.1:{port}"
            where = {"ANTIPHON_HTTP_URL": f"{http}/v1", "ANTIPHON_SPEECH": str(serving.recording(port, CACHE))}
            done = subprocess.run(
                ["node", "webrtc_agents.mjs"],
                cwd=node,
                env={**os.environ, **where},
                capture_output=True,
                text=True,
                timeout=400,
            )
            told = [json.loads(line)["check"] for line in done.stdout.splitlines() if line.startswith("{")]
            assert told == CHECKS, done.stdout + done.stderr[-2000:]
            for _ in range(100):
                sessions = httpx.get(f"{http}/v1/realtime/sessions").json()["data"]
                if all(session["closed_at"] for session in sessions):
                    break
                time.sleep(0.1)
            assert sessions and all(session["closed_at"] and session["transport"] == "webrtc" for session in sessions)
    except serving.NotStarted as error:
        pytest.fail(f"the server did not start: {error}")
