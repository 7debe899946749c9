"""Media at the edges of their rules: pictures thinner than one place, sounds shorter than one window."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from transformers import Qwen2VLImageProcessorPil, WhisperFeatureExtractor

from antiphon.pipelines.qwen3_omni.media import audio, pictures
from antiphon.pipelines.qwen3_omni.media.budget import Budget, Sampling
from antiphon.pipelines.requests import PCM_F32_16K
from tests.qwen3_omni.cases import wav


@pytest.mark.parametrize("size", [(10, 300), (284, 2), (6, 13), (16, 16), (1, 1), (1, 200), (17, 9)])
def test_thin_pictures_equal_transformers(size: tuple[int, int], folder: str) -> None:
    image = Image.fromarray(np.random.default_rng(6).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
    theirs = Qwen2VLImageProcessorPil.from_pretrained(folder)([image], return_tensors="np")
    ours = pictures.Patcher(folder).image(image, Sampling(), "k", Budget(), "i")
    assert ours.grid == tuple(theirs["image_grid_thw"][0]) and ours.pixels is not None
    assert np.abs(ours.pixels - theirs["pixel_values"]).max() < 1e-5


def test_thin_films_keep_the_sampler_s_own_rule(folder: str) -> None:
    """The published sampler takes a side of 10 as one place of 32, where the image processor would size 10 x 300 up."""
    assert pictures.Patcher(folder).video_size(10, 300, 4, Sampling(min_pixels=1024, max_pixels=65536)) == (32, 288)


@pytest.mark.parametrize("samples", [201, 320, 799, 1599, 1600])
def test_short_sounds_equal_transformers(samples: int, folder: str) -> None:
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    sound = np.random.default_rng(7).standard_normal(samples).astype(np.float32)
    theirs = extractor([sound], sampling_rate=16000, padding=True, truncation=False, return_tensors="np")["input_features"][0]
    ours = audio.log_mel(sound, extractor, "k")
    assert ours.frames == theirs.shape[1] == samples // 160 and ours.mel is not None
    assert np.abs(ours.mel - theirs).max() < 1e-6


@pytest.mark.parametrize("value", [1e30, -3e38, np.inf, np.nan])
@pytest.mark.parametrize("raw", [True, False])
def test_sound_past_all_measure_is_still_numbers(value: float, raw: bool, folder: str) -> None:
    """A float file may hold anything; what cannot be squared would make a model's numbers none."""
    loud = np.full(16_000, value, np.float32)
    data = loud.astype("<f4").tobytes() if raw else wav(loud)
    samples = audio.read_samples(data, PCM_F32_16K if raw else "wav", Budget(), "it")
    made = audio.log_mel(samples, WhisperFeatureExtractor.from_pretrained(folder), "k").mel
    assert made is not None and np.isfinite(made).all()


@pytest.mark.parametrize("samples", [1, 160, 200])
def test_a_sound_too_short_for_the_spectrogram_is_heard_with_silence_behind_it(samples: int, folder: str) -> None:
    """Half a window is mirrored at each end: 201 samples are the fewest that transformers takes."""
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    sound = np.random.default_rng(7).standard_normal(samples).astype(np.float32)
    filled = np.concatenate([sound, np.zeros(201 - samples, np.float32)])
    assert np.array_equal(audio.log_mel(sound, extractor, "k").mel, audio.log_mel(filled, extractor, "k").mel)
