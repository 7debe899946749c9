"""Which media a request brings; pure, for the route of the graph."""

from __future__ import annotations

from antiphon.pipelines.qwen3_omni.params import stage_params
from antiphon.pipelines.requests import AudioPart, GenerateRequest, ImagePart, Part, VideoPart


def brings_audio(request: GenerateRequest) -> bool:
    """Sound to encode: audio parts, or videos whose sound track is wanted."""
    if _any(request, (AudioPart,)):
        return True
    return stage_params(request, "media").get("use_audio_in_video") is True and _any(request, (VideoPart,))


def brings_pictures(request: GenerateRequest) -> bool:
    return _any(request, (ImagePart, VideoPart))


def _any(request: GenerateRequest, kinds: tuple[type[Part], ...]) -> bool:
    return any(isinstance(p, kinds) for m in request.messages if m.role == "user" for p in m.parts)
