"""What media take of the context is told to a conversation as the model counts it: it forgets in time, and no sooner."""

from __future__ import annotations

import base64
from functools import partial

import numpy as np
import pytest
from PIL import Image as Pillow
from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import _get_feat_extract_output_lengths

from antiphon.pipelines.qwen3_omni import pipeline
from antiphon.realtime import doors
from antiphon.session.features import Features
from antiphon.session.request import Heard, Image, Message
from tests.qwen3_omni.cases import png
from tests.qwen3_omni.oracle import Oracle

FRAME = 4
"""Tokens around a turn."""


def test_speech_is_counted_as_the_processor_counts_it(folder: str) -> None:
    estimate = doors.allowed(Features(), pipeline.build(folder).info).estimate
    for seconds in (1, 15, 300):
        read = int(_get_feat_extract_output_lengths(np.array(100 * seconds)))
        assert estimate(Message("user", (Heard((0, 16_000 * seconds)),))) == FRAME + read


@pytest.mark.parametrize("size", [(96, 64), (1000, 700), (3000, 100), (4, 4)])
def test_pictures_are_counted_about_as_the_processor_counts_them(size: tuple[int, int], folder: str, oracle: Oracle) -> None:
    picture = Pillow.new("RGB", size)
    grid = oracle.processor.image_processor([picture], return_tensors="np")["image_grid_thw"][0]
    url = "data:image/png;base64," + base64.b64encode(png(picture)).decode()
    told = doors.allowed(Features(), pipeline.build(folder).info).estimate(Message("user", (Image(url),)))
    read = int(grid.prod()) // 4 + 2
    assert read * 0.9 <= told <= read * 1.5 + FRAME


def test_an_operator_s_own_estimate_is_kept(folder: str) -> None:
    mine = partial(max, 7)
    assert doors.allowed(Features(estimate=mine), pipeline.build(folder).info).estimate is mine
