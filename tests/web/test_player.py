"""The page's loudspeaker and its recording by themselves, in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "web_demo" / "js"


def node(script: str, *arguments: str) -> Any:
    """What a script of this folder prints."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    done = subprocess.run(["node", HERE / script, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_no_step_is_larger_than_the_tone_s_own(rate: int) -> None:
    """Neither between pieces, nor at an interruption, nor where an answer runs dry and goes on: such a step clicks."""
    made = node("player.mjs", str(PAGE / "audio" / "player-worklet.js"), str(rate))
    largest = 0.4 * 2 * np.pi * 440 / rate
    start = rate // 1000  # the filter's own beginning
    whole = np.array(made["whole"])
    assert abs(len(whole) - rate) <= 128 and np.abs(np.diff(whole[start:-start])).max() <= 1.02 * largest
    assert abs(np.sqrt(np.mean(whole[start:-start] ** 2)) - 0.4 / np.sqrt(2)) < 0.002
    for cut in map(np.array, made["cleared"]):
        assert np.abs(np.diff(cut[start:])).max() <= 1.5 * largest and not cut[-128:].any()
    dry = np.array(made["dry"])
    gap = np.flatnonzero(dry == 0)
    assert len(gap) > 2 * 128, "it did run dry"
    assert np.abs(np.diff(dry[start:-start])).max() <= 1.5 * largest


def test_an_hour_can_be_saved() -> None:
    made = node("recording.mjs", str(PAGE / "recording.js"))
    assert made["frames"] - 180_000 * 48 in (0, 1)
    assert [made[name] for name in ("first", "second", "last")] == [[8191, 0], [8191, 16383], [8191, 16383]]
