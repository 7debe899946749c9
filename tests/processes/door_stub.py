"""A talking stub in two processes for the doors: thinker (text) in "mind", talker (audio) in "voice"."""

from __future__ import annotations

from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.stage import Request
from tests.realtime.stub_client import INFO

MODEL = "tests.realtime.rest.stub_stage:StubModel"


def to_voice(request: Request) -> tuple[str, ...]:
    return ("talker",)


def build(step_s: float = 0.005) -> PipelineConfig:
    """A text request never needs the voice."""
    thinker = StageConfig(
        name="thinker",
        factory=MODEL,
        factory_args={"name": "thinker", "kind": "text", "step_s": step_s},
        process="mind",
        lane="mind",
        stream_to=("talker",),
        route_fn=to_voice,
        terminal="text",
        credits=4096,
    )
    talker = StageConfig(
        name="talker",
        factory=MODEL,
        factory_args={"name": "talker", "kind": "audio", "step_s": step_s},
        process="voice",
        lane="voice",
        terminal="audio",
    )
    return PipelineConfig("stub", "thinker", [thinker, talker], info=INFO)
