"""The declaration: what a request would open, what is refused before any stage sees it, where the stages would run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Voice
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Request

Ask = Callable[..., GenerateRequest]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"voice": Voice("nobody")}, "nobody"),
        ({"voice": Voice(speed=2.0)}, "speed"),
        ({"stage_params": {"singer": {}}}, "singer"),
        ({"stage_params": {"talker": {"pitch": 1}}}, "pitch"),
        ({"terminals": ("transcript",)}, "transcript"),
        ({"task": "speech"}, "speech"),
    ],
)
def test_refused_at_submit_by_name(folder: str, ask: Ask, changes: dict[str, Any], word: str) -> None:
    config = build(folder)
    body = ask("text")
    asked = {name: getattr(body, name) for name in body.__struct_fields__} | changes
    body = GenerateRequest(**asked)
    with pytest.raises(Refused, match=word):
        config.plan(Request(id="x", terminals=body.terminals, body=body))


def test_declared_shape(folder: str) -> None:
    text, speech = build(folder, speech=False), build(folder)
    assert (len(text.stages), len(speech.stages)) == (6, 8)
    assert speech.info.voices == ("ethan", "aiden", "chelsie")
    for preset in ("one_gpu", "two_gpus"):
        placed = build(folder, preset=preset)  # type: ignore[arg-type]
        assert placed.stages["talker_ar"].process != placed.stages["thinker"].process
        with pytest.raises(ConfigError, match=r"process|gpu"):
            LocalRuntime(placed)
    assert build(folder, preset="two_gpus").stages["talker_ar"].gpu == (1,)


def test_a_transcript_is_a_side_branch(folder: str, ask: Ask) -> None:
    config = build(folder, transcriber="local")
    chat = config.plan(Request(id="x", terminals=("text", "transcript"), body=ask("audio")))
    assert set(chat.next["preprocessing"]) == {"audio_encoder", "mm_aggregate", "transcriber"}
    assert config.stages["transcriber"].side and "transcriber" not in chat.results["thinker"]
    plain = config.plan(Request(id="x", terminals=("text",), body=ask("audio")))
    assert "transcriber" not in plain.stages
    hear = GenerateRequest(id="h", task="transcription", terminals=("transcript",), audio=AudioPart(b"x"))
    assert config.plan(Request(id="h", terminals=("transcript",), body=hear)).stages == ("preprocessing", "transcriber")
    assert config.info.terminals["transcription"] == ("transcript",)
    with pytest.raises(Refused, match="transcription"):
        build(folder).plan(Request(id="h", terminals=("transcript",), body=hear))
