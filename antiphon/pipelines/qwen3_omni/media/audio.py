"""Sound to log-mel frames: 16 kHz mono, 128 bins, 100 frames a second, by the checkpoint's own feature extractor."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphon.codecs import media as files
from antiphon.codecs.errors import CodecError, NoSound, NotAudio
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media.budget import Budget
from antiphon.pipelines.qwen3_omni.payloads import Floats, Speech
from antiphon.pipelines.requests import PCM_F32_16K

RATE = 16_000


def read_samples(data: bytes, format: str, budget: Budget, what: str) -> Floats:
    """float32 mono at 16 kHz. Raises Refused naming ``what`` and the limit; nothing past it is decoded."""
    if format == PCM_F32_16K:
        if len(data) % 4 or not data:
            raise Refused(f"{what}: {len(data)} bytes are no float32 samples", code="invalid_media", param=what)
        if len(data) // 4 > budget.audio_seconds * RATE:
            raise Refused(
                f"{what}: the audio is longer than the limit of {budget.audio_seconds:g} seconds",
                code="invalid_media",
                param=what,
            )
        samples: Floats = np.frombuffer(data, "<f4").astype(np.float32)
        files.bound(samples)
        return samples
    try:
        return files.decode(data, RATE, format=format, max_seconds=budget.audio_seconds, max_bytes=budget.audio_bytes)
    except CodecError as error:
        raise Refused(f"{what}: {error}", code="invalid_media", param=what) from error


def sound_track(data: bytes, budget: Budget, what: str) -> Floats | None:
    """A video's first sound track; None when it has none."""
    try:
        return files.decode(data, RATE, max_seconds=budget.video_seconds, max_bytes=budget.video_bytes)
    except (NoSound, NotAudio):
        return None
    except CodecError as error:
        raise Refused(f"{what}: {error}", code="invalid_media", param=what) from error


def log_mel(samples: Floats, extractor: Any, key: str) -> Speech:
    """``extractor``: a WhisperFeatureExtractor. Each audio is its own batch, so none depends on its neighbours."""
    # The spectrogram mirrors half a window at each end: what is shorter is filled up with silence, what is not stays as it is.
    if (missing := extractor.n_fft // 2 + 1 - len(samples)) > 0:
        samples = np.pad(samples, (0, missing))
    made = extractor(
        [samples], sampling_rate=RATE, padding=True, truncation=False, return_attention_mask=True, return_tensors="np"
    )
    mel = np.ascontiguousarray(made["input_features"][0][:, made["attention_mask"][0].astype(bool)], dtype=np.float32)
    return Speech(mel, mel.shape[1], key)


def audio_tokens(frames: int, n_window: int) -> int:
    """Places that ``frames`` mel frames take in the prompt: three stride-2 convolutions over chunks of 2 n_window."""

    def halved(n: int) -> int:
        return (n - 1) // 2 + 1

    chunk = 2 * n_window
    rest = frames % chunk
    full = halved(halved(halved(chunk)))
    return frames // chunk * full + (halved(halved(halved(rest))) if rest else 0)
