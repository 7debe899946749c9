"""The page's loudspeaker by itself, in node: no click between pieces, at an interruption, or where an answer runs dry."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
WORKLET = HERE.parent.parent / "web_demo" / "js" / "audio" / "player-worklet.js"


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_no_step_is_larger_than_the_tone_s_own(rate: int) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    done = subprocess.run(["node", HERE / "player.mjs", WORKLET, str(rate)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
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
