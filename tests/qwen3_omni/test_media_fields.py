"""How videos are read, said beside them as other servers of this family take it; bounds of frames alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.qwen3_omni.media.pictures import Patcher
from antiphon.realtime.errors import BadRequest
from antiphon.realtime.rest import chat_body
from antiphon.realtime.rest.audio_answers import AudioAnswers
from antiphon.realtime.rest.fields import convert
from tests.qwen3_omni.cases import picture
from tests.realtime.stub_client import INFO


def read(**fields: Any) -> dict[str, Any]:
    body = convert({"messages": [{"role": "user", "content": "hi"}], **fields}, chat_body.ChatBody)
    return chat_body.read(body, INFO, "r", AudioAnswers(60, time.time), "me").request.stage_params


def test_said_beside_the_videos_or_for_the_stage() -> None:
    said = read(video_fps=1.5, video_max_frames=8, video_total_pixels=9000, use_audio_in_video=False)
    assert said == {"media": {"video_fps": 1.5, "video_max_frames": 8, "video_total_pixels": 9000, "use_audio_in_video": False}}
    assert read(video_fps=1, stage_params={"media": {"video_fps": 3, "min_pixels": 5}, "talker": {}}) == {
        "media": {"video_fps": 3, "min_pixels": 5},
        "talker": {},
    }
    assert read() == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("video_fps", "2"),
        ("video_max_frames", 2.5),
        ("video_max_pixels", 10**30),
        ("use_audio_in_video", 1),
        ("video_min_pixels", 0),
    ],
)
def test_what_is_wrong_is_named(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**{name: value})
    assert caught.value.param == name


def test_bounds_of_frames_leave_images_alone(folder: str) -> None:
    """The tiny checkpoint's places are 32 x 32 pixels; a budget of 2 x 2 of them for frames, of 4 x 4 for images."""
    patcher = Patcher(folder)
    sampling = Sampling().changed(
        {"min_pixels": 1024, "max_pixels": 16 * 1024, "video_min_pixels": 1024, "video_max_pixels": 4 * 1024}
    )
    assert patcher.video_size(1000, 1000, 2, sampling) == (64, 64)
    big = picture().resize((1000, 1000))
    assert patcher.image(big, sampling, "", Budget(), "image").grid == (1, 8, 8)
    least = Sampling().changed({"video_min_pixels": 16 * 1024, "max_pixels": 1024})
    assert patcher.video_size(32, 32, 2, least) == (128, 128)


def test_the_total_has_two_names() -> None:
    assert Sampling().changed({"video_total_pixels": 50_000}) == Sampling(total_pixels=50_000)
    assert Sampling().changed({"video_total_pixels": 50_000}).key != Sampling().key
    sizes = [
        Sampling().changed({name: 4096}).key for name in ("min_pixels", "max_pixels", "video_min_pixels", "video_max_pixels")
    ]
    assert len(set(sizes)) == len(sizes), "each makes other pictures of the same bytes"
