"""Real networks, recordings and voices for the hearing tests; each skips, with the reason, what is not installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from antiphon.codecs import media
from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError

Sound = NDArray[np.float32]


def folder(name: str) -> Path:
    """The installed weight, or skip."""
    try:
        return weights.path(name)
    except WeightError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def vad():
    from antiphon.pipelines.ears import silero

    return silero.Silero(folder(silero.WEIGHT))


@pytest.fixture(scope="session")
def recogniser():
    from antiphon.pipelines.local import whisper

    return whisper.Recogniser(folder(whisper.WEIGHT))


@pytest.fixture(scope="session")
def smart_turn_net():
    from antiphon.pipelines.ears import smart_turn

    return smart_turn.SmartTurn(folder(smart_turn.WEIGHT))


@pytest.fixture
def clip(shared_audio: Path) -> Callable[[str], Sound]:
    """A recording at 16 kHz by its file name."""
    return lambda name: media.decode((shared_audio / name).read_bytes(), 16_000)


@pytest.fixture(scope="session")
def say() -> Callable[..., Sound]:
    """Synthetic speech at 16 kHz."""
    from hibari import Hibari

    voice = Hibari(threads=1)

    def speak(text: str, seed: int = 1) -> Sound:
        return soxr.resample(np.asarray(voice(text, seed=seed), np.float32), 24_000, 16_000).astype(np.float32)

    return speak
