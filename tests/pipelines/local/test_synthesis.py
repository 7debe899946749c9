"""Synthesis in blocks against hibari's own, on spectra that are loud everywhere: also at both ends, also very short."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

dsp = pytest.importorskip("hibari.dsp", reason="the extra `local` is not installed")

from antiphon.pipelines.local.spoken import Frames  # noqa: E402
from antiphon.pipelines.local.synthesis import Pulses, Synthesis, levels  # noqa: E402


def loud(count: int, seed: int = 0) -> tuple[Frames, NDArray[np.float32]]:
    """Frames voiced from the first to the last, and the whole waveform by the package."""
    rng = np.random.default_rng(seed)
    spectra = rng.normal(-1.0, 0.5, (5, 601, count)).astype(np.float32)
    f0 = rng.uniform(80, 300, count).astype(np.float32)
    f0[count // 3 : count // 2] = 0  # and an unvoiced stretch inside
    noise = np.random.default_rng(9).standard_normal((601, 2 * count), dtype=np.float32).view(np.complex64)
    whole = dsp.synth(*(part.copy() for part in spectra), f0, np.random.default_rng(9))
    return Frames(spectra, f0, noise, 0, count), whole


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 37])
@pytest.mark.parametrize("block", [1, 4, 16, 100])
def test_blocks_equal_the_whole(count: int, block: int) -> None:
    frames, whole = loud(count)
    synthesis, pieces = Synthesis(frames), []
    while synthesis.left:
        pieces.append(synthesis.take(block))
    made = np.concatenate(pieces)
    assert len(made) == len(whole) == count * 300
    assert np.abs(made - whole).max() <= 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize(("start", "stop"), [(0, 20), (1, 20), (7, 19), (18, 20), (0, 1)])
def test_a_part_equals_the_part(start: int, stop: int) -> None:
    frames, whole = loud(20)
    synthesis = Synthesis(Frames(frames.spectra, frames.f0, frames.noise, start, stop))
    made = np.concatenate([synthesis.take(3) for _ in range(-(-(stop - start) // 3))])
    assert synthesis.left == 0
    assert np.abs(made - whole[start * 300 : stop * 300]).max() <= 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_pulses_in_steps_equal_the_package(count: int) -> None:
    f0 = np.linspace(30, 400, count).astype(np.float32)
    pulses = Pulses(f0)
    made = np.concatenate([pulses.windows(frame, frame + 1)[:, 600:900] for frame in range(count)]).reshape(-1)
    assert np.abs(made - dsp.pulses(f0)).max() <= 1e-3 * np.abs(made).max()


def test_levels_tell_sound_from_silence() -> None:
    frames, whole = loud(30)
    true = 10 * np.log10((whole.reshape(-1, 300) ** 2).mean())
    assert abs(float(np.median(levels(frames.spectra, frames.f0))) - true) < 12
    silent = np.full_like(frames.spectra, -16.0)
    assert levels(silent, frames.f0).max() < -90
