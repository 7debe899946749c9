"""``images``, ``audios``, ``videos`` beside the messages, and media by address: handed on as they are, nothing fetched here."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import AudioPart, ImagePart, TextPart, VideoPart
from antiphon.realtime.errors import BadRequest, NotServed
from antiphon.realtime.protocol.media import data_uri_bytes
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


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("image_url", "file:///etc/passwd", "expected a data URI, base64, or an http"),
        ("video_url", "data:video/mp4,abc", "the data URI is not base64-encoded"),
        ("image_url", "$$$$", "not base64"),
        ("input_audio", "https://example.com/a.wav", "audio is not fetched"),
        ("input_audio", "", "the audio is empty"),
    ],
)
def test_what_is_wrong_beside_the_messages_is_named_by_its_own_field(kind: str, given: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as refused:
        media_parts.top_level(SEES, kind, given, "things[2]")
    assert refused.value.param == "things[2]"


@pytest.mark.parametrize(("given", "param"), [("file:///x", "p.image_url"), ({"url": "file:///x"}, "p.image_url.url")])
def test_a_part_s_address_is_named_as_it_was_written(given: Any, param: str) -> None:
    with pytest.raises(BadRequest, match="expected a data URI") as refused:
        media_parts.part(SEES, {"type": "image_url", "image_url": given}, "p")
    assert refused.value.param == param


def test_schemes_are_the_same_in_any_case() -> None:
    image = media_parts.top_level(SEES, "image_url", f"Data:image/png;BASE64,{DATA}", "i")
    assert isinstance(image, ImagePart) and image.data == b"bytes"
    video = media_parts.top_level(SEES, "video_url", "HTTPS://example.com/v.mp4", "v")
    assert isinstance(video, VideoPart) and video.url == "HTTPS://example.com/v.mp4"
    assert data_uri_bytes(f"DATA:image/png;Base64,{DATA}", param="x") == b"bytes"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "javascript:1"])
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(Exception, match="data URI"):
        media_parts.part(SEES, {"type": "image_url", "image_url": {"url": url}}, "p")


def test_a_pipeline_that_cannot_see_says_so() -> None:
    with pytest.raises(NotServed, match="takes no image"):
        media_parts.top_level(READS, "image_url", DATA, "images[0]")
