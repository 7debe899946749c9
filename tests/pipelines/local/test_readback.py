"""The voice is read back by the recogniser: what was written elsewhere than in plain words is said right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.local.segmenter import Segmenter
from antiphon.pipelines.outputs import TextDelta
from antiphon.pipelines.requests import Voice
from tests.pipelines.local.driver import chain, request

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def recogniser() -> Any:
    pytest.importorskip("ctranslate2", reason="the extra `local` is not installed")
    from antiphon.pipelines.local.whisper import Recogniser

    try:
        return Recogniser(weights.path("whisper-base-ct2"))
    except WeightError as e:
        pytest.skip(str(e))


def read_back(recogniser: Any, talker: Any, text: str, speed: float = 1.0) -> str:
    """What the recogniser hears, as lower-case words."""
    import soxr

    from antiphon.pipelines.local.code2wav import Code2Wav

    said = chain([Segmenter(), talker, Code2Wav()], request(voice=Voice(speed=speed)), [TextDelta(text)])
    pcm = soxr.resample(np.concatenate([chunk.pcm for chunk in said.chunks]), 24_000, 16_000)
    window = len(pcm) / 16_000 + 2
    encoded = recogniser.encode(pcm, np.ceil(window))
    heard = recogniser.decode([encoded], [recogniser.vocabulary.start("en")], [80])[0].text
    return " ".join(re.sub(r"[^\w.:' ]", " ", heard).lower().split()).rstrip(".")


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (
            "Of course I can, but it depends on the weather in London tomorrow.",
            "of course i can but it depends on the weather in london tomorrow",
        ),
        ("It **costs** 3.14 euros or 1,5 €. 😀", "it costs 3.14 euros or 1.5 euros"),
        ("Dr. Smith will see you at 10:30.", r"(dr.|doctor) smith will see you at 10[:.]30"),
    ],
)
def test_heard_as_written(recogniser: Any, talker: Any, text: str, heard: str) -> None:
    assert re.fullmatch(heard, read_back(recogniser, talker, text))


def test_double_speed_is_still_understood(recogniser: Any, talker: Any) -> None:
    words = read_back(recogniser, talker, "Please call me tomorrow morning, because the train is late again.", 2.0).split()
    wanted = ["please", "call", "me", "tomorrow", "morning", "because", "the", "train", "is", "late", "again"]
    assert len(set(wanted) & set(words)) >= len(wanted) - 2
