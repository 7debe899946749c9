"""A real mp4 with a sound track, made here, and an independent reading of it: what our sampler must find."""

from __future__ import annotations

import io
from fractions import Fraction
from functools import lru_cache
from typing import Any

import av
import numpy as np
import soxr
from PIL import Image

WIDTH, HEIGHT, FPS, FRAMES = 96, 64, 10, 25
SAMPLED_FPS = 2.0
SOUND_RATE = 48_000
BOUNDS = {"min_pixels": 1024, "max_pixels": 4096}
"""Small frames: 64 x 64 places at most."""


@lru_cache(maxsize=1)
def mp4() -> bytes:
    """2.5 s: noise that drifts from frame to frame, H.264, with a 330 Hz tone in AAC."""
    rng = np.random.default_rng(3)
    base = rng.integers(0, 255, (HEIGHT // 8, WIDTH // 8, 3))
    held = io.BytesIO()
    with av.open(held, "w", format="mp4") as out:
        video = out.add_stream("libx264", rate=FPS)
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        sound = out.add_stream("aac", rate=SOUND_RATE)
        sound.layout = "mono"
        for i in range(FRAMES):
            small = np.roll(base, i, axis=1).astype(np.uint8)
            picture = np.kron(small, np.ones((8, 8, 1), np.uint8))
            for packet in video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                out.mux(packet)
        samples = (0.3 * np.sin(2 * np.pi * 330 * np.arange(SOUND_RATE * FRAMES // FPS) / SOUND_RATE)).astype(np.float32)
        for at in range(0, len(samples), 1024):
            frame = av.AudioFrame.from_ndarray(samples[None, at : at + 1024], format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = SOUND_RATE, at, Fraction(1, SOUND_RATE)
            for packet in sound.encode(frame):
                out.mux(packet)
        for stream in (video, sound):
            for packet in stream.encode(None):
                out.mux(packet)
    return held.getvalue()


@lru_cache(maxsize=1)
def decoded() -> list[np.ndarray]:
    """Every frame, in order."""
    with av.open(io.BytesIO(mp4())) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@lru_cache(maxsize=1)
def track() -> np.ndarray:
    """The whole sound track at 16 kHz, by FFmpeg's packets and one soxr call."""
    with av.open(io.BytesIO(mp4())) as container:
        mixer = av.AudioResampler(format="flt", layout="mono", rate=SOUND_RATE)
        pieces = [p.to_ndarray()[0] for frame in container.decode(audio=0) for p in mixer.resample(frame)]
    return soxr.resample(np.concatenate(pieces).astype(np.float32), SOUND_RATE, 16000, quality="HQ").astype(np.float32)


def expected_frames() -> tuple[list[Image.Image], tuple[int, int, int], float]:
    """25 frames at 10 a second, sampled at 2: 5 wanted, 4 taken (an even number), at 0, 8, 16, 24.

    96 x 64 within 4096 pixels in multiples of 32: 64 x 32. Each pair covers 2 * 2.5 / 4 s.
    """
    frames = [Image.fromarray(decoded()[i]).resize((64, 32), Image.Resampling.BICUBIC) for i in (0, 8, 16, 24)]
    return frames, (2, 2, 4), 1.25


def expected_patches(oracle: Any, frames: list[Image.Image]) -> np.ndarray:
    """Through transformers' image processor, one frame at a time: its patches repeat a picture in both time slots."""
    single = [oracle.processor.image_processor([f], do_resize=False, return_tensors="np")["pixel_values"] for f in frames]
    cut = [p.reshape(len(p), 3, 2, 16, 16) for p in single]
    pairs = [np.stack([cut[i][:, :, 0], cut[i + 1][:, :, 1]], axis=2) for i in range(0, len(cut), 2)]
    return np.concatenate([pair.reshape(len(pair), -1) for pair in pairs]).astype(np.float32)


def interleaved(grid: tuple[int, int, int], seconds: float, mel_frames: int) -> str:
    """By transformers' processor: its own method, on the numbers it would have."""
    from types import SimpleNamespace

    from transformers import Qwen3OmniMoeProcessor
    from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import _get_feat_extract_output_lengths

    stand_in = SimpleNamespace(
        audio_bos_token="<|audio_start|>",
        audio_eos_token="<|audio_end|>",
        audio_token="<|audio_pad|>",
        video_token="<|video_pad|>",
        video_processor=SimpleNamespace(merge_size=2),
    )
    text: str = Qwen3OmniMoeProcessor.replace_video_with_audio_token(
        stand_in,
        {"video_grid_thw": np.array([grid]), "video_second_per_grid": [seconds]},
        0,
        {"num_audio_tokens": [int(_get_feat_extract_output_lengths(np.array(mel_frames)))]},
        0,
        position_id_per_seconds=13.0,
    )
    return text
