"""What is refused when a request is submitted, before any stage sees it: pure, without a weight or a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni import params
from antiphon.pipelines.qwen3_omni.prompt_kinds import brings_audio, brings_pictures
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Request


class Check:
    """Refuses at submit what no stage should see."""

    def __init__(self, voices: Sequence[str], transcribes: bool, elsewhere: bool) -> None:
        self.voices = tuple(voices)
        self.transcribes = transcribes
        self.elsewhere = elsewhere

    def __call__(self, request: Request) -> None:
        body: GenerateRequest = request.body
        if body.task == "transcription" and self.transcribes:
            return
        if body.task == "speech" and self.voices:
            if request.kind != "generate":
                raise Refused("a text that is only spoken prepares nothing ahead", code="unsupported_value")
        elif body.task != "chat":
            raise Refused(f"this pipeline does not serve {body.task}", code="unsupported_value")
        elif self.elsewhere:
            _check_elsewhere(request)
        params.check_stage_params(body)
        if "audio" in request.terminals and self.voices:
            if body.voice.speed != 1.0:
                raise Refused("speed is not supported by this model's voice", code="unsupported_value", param="speed")
            params.check_language(body.voice.language)
            params.speaker(body, self.voices)
            params.chunking(body, params.FIRST_CHUNK_FRAMES, params.CHUNK_FRAMES)


def _check_elsewhere(request: Request) -> None:
    """What only a thinker of our own does."""
    body: GenerateRequest = request.body
    if brings_audio(body) or brings_pictures(body):
        raise Refused(
            "prompts with media are not supported with a thinker outside: speech needs its hidden states there",
            code="unsupported_value",
            param="messages",
        )
    if request.kind != "generate":
        raise Refused("a thinker outside prepares nothing ahead", code="unsupported_value")
