"""``images``, ``audios``, ``videos`` beside the messages, and media by address: handed on as they are, nothing fetched here."""

from __future__ import annotations

import base64

import pytest

from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import AudioPart, ImagePart, TextPart, VideoPart
from antiphon.realtime.errors import NotServed
from antiphon.realtime.rest import media_parts

SEES = PipelineInfo(name="sees", model="sees", inputs={"chat": ("text", "audio", "image", "video")})
READS = PipelineInfo(name="reads", model="reads", inputs={"chat": ("text",)})
DATA = base64.b64encode(b"bytes").decode()


def test_each_kind_becomes_its_part() -> None:
    assert media_parts.top_level(SEES, "image_url", DATA, "images[0]") == ImagePart(
        data=b"bytes", key=media_parts.content_key(b"bytes"), name="images[0]"
    )
    audio = media_parts.top_level(SEES, "input_audio", f"data:audio/wav;base64,{DATA}", "audios[0]")
    assert isinstance(audio, AudioPart)
    assert (audio.data, audio.name) == (b"bytes", "audios[0]")
    assert media_parts.top_level(SEES, "video_url", "https://example.com/v.mp4", "videos[0]") == VideoPart(
        url="https://example.com/v.mp4", name="videos[0]"
    )


def test_a_typed_part_may_be_an_address() -> None:
    given = {"type": "image_url", "image_url": {"url": "http://example.com/i.png", "detail": "low"}}
    assert media_parts.part(SEES, given, "p") == ImagePart(url="http://example.com/i.png", detail="low", name="p")
    assert media_parts.part(SEES, {"type": "text", "text": "t"}, "p") == TextPart("t")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "javascript:1"])
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(Exception, match="data URI"):
        media_parts.part(SEES, {"type": "image_url", "image_url": {"url": url}}, "p")


def test_a_pipeline_that_cannot_see_says_so() -> None:
    with pytest.raises(NotServed, match="takes no image"):
        media_parts.top_level(READS, "image_url", DATA, "images[0]")
