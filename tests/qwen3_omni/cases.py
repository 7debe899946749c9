"""What is asked: each case once as the oracle's inputs, once as a request to our pipeline."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import soundfile
import torch
from PIL import Image

from antiphon.pipelines.requests import (
    AudioPart,
    GenerateRequest,
    ImagePart,
    Message,
    Sampling,
    TextPart,
    VideoPart,
    Voice,
)
from tests.qwen3_omni import film
from tests.qwen3_omni.oracle import TALKER_TOKENS, THINKER_TOKENS, Oracle

SYSTEM = "You are Qwen."
HELLO = "Hello, how are you today?"
Parts = tuple[TextPart | AudioPart | ImagePart | VideoPart, ...]


@dataclass(frozen=True)
class Case:
    """``turns``: (role, parts) of our request; ``inputs``: the oracle's own; ``limits``: of its answer."""

    turns: tuple[tuple[str, Parts], ...]
    inputs: Callable[[Oracle], dict[str, Any]]
    limits: Mapping[str, Any] = field(default_factory=dict)
    media: Mapping[str, Any] = field(default_factory=dict)

    def request(self, id: str, **changes: Any) -> GenerateRequest:
        """The same limits, greedy but for a seeded talker. ``thinker``, ``talker``, ``code2wav`` change stage_params."""
        talker: dict[str, Any] = {"max_tokens": self.limits.get("frames", TALKER_TOKENS), "temperature": 0.0}
        if (seed := self.limits.get("seed")) is not None:
            talker |= {"temperature": 0.9, "seed": seed}
        stage_params = {
            "thinker": {"stop_token_ids": list(self.limits.get("eos", ())), **changes.pop("thinker", {})},
            "talker": {**talker, **changes.pop("talker", {})},
            "code2wav": changes.pop("code2wav", {}),
            "media": {**self.media, **changes.pop("media", {})},
        }
        messages = tuple(Message(role, parts) for role, parts in self.turns)  # type: ignore[arg-type]
        asked: dict[str, Any] = {
            "terminals": ("text", "audio"),
            "messages": messages,
            "sampling": Sampling(max_tokens=self.limits.get("tokens", THINKER_TOKENS)),
            "voice": Voice(self.limits.get("speaker", "Ethan")),
            "stage_params": stage_params,
        }
        return GenerateRequest(id=id, task="chat", **{**asked, **changes})


def _say(text: str) -> tuple[TextPart, ...]:
    return (TextPart(text),)


def _messages(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


@lru_cache(maxsize=1)
def tone() -> np.ndarray:
    """Two seconds of 440 Hz in noise, 16 kHz."""
    noise = np.random.default_rng(0).standard_normal(32000)
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(32000) / 16000) + 0.05 * noise).astype(np.float32)


@lru_cache(maxsize=1)
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 96, 3), dtype=np.uint8))


@lru_cache(maxsize=1)
def pictures() -> list[Image.Image]:
    """Four of different sizes."""
    rng = np.random.default_rng(10)
    return [Image.fromarray(rng.integers(0, 255, (64 + 32 * n, 96, 3), dtype=np.uint8)) for n in range(4)]


def png(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()


def wav(samples: np.ndarray) -> bytes:
    held = io.BytesIO()
    soundfile.write(held, samples, 16000, format="WAV", subtype="FLOAT")
    return held.getvalue()


ONE = (("system", SYSTEM), ("user", HELLO))
WHO = (("user", "Who are you?"),)
SEVERAL = (*ONE, ("assistant", "I can hear a tone."), ("user", "What sound?"))
AUDIO = AudioPart(wav(tone()), "wav")
IMAGE = ImagePart(png(picture()))


def _typed(*kinds: str, text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]}]


def _spoken(turns: tuple[tuple[str, str], ...]) -> tuple[tuple[str, Parts], ...]:
    return tuple((role, _say(text)) for role, text in turns)


def _film_inputs(oracle: Oracle, sound: bool, image: bool = False) -> dict[str, Any]:
    """A video prompt written by hand: transformers' own video processor would need torchvision."""
    config = oracle.model.config.thinker_config
    frames, grid, seconds = film.expected_frames()
    pixels = film.expected_patches(oracle, frames)
    places = grid[0] * grid[1] * grid[2] // 4
    inputs: dict[str, Any] = {
        "pixel_values_videos": torch.from_numpy(pixels),
        "video_grid_thw": torch.tensor([grid]),
        "video_second_per_grid": torch.tensor([seconds]),
    }
    inside = "<|video_pad|>" * places
    if sound:
        heard = oracle.processor.feature_extractor(
            [film.track()], sampling_rate=16000, padding=True, truncation=False, return_attention_mask=True, return_tensors="pt"
        )
        inputs |= {"input_features": heard["input_features"], "feature_attention_mask": heard["attention_mask"]}
        inputs["use_audio_in_video"] = True
        inside = film.interleaved(grid, seconds, int(heard["attention_mask"].sum()))
    text = f"<|vision_start|>{inside}<|vision_end|>"
    if image:
        bounds = {"shortest_edge": film.BOUNDS["min_pixels"], "longest_edge": film.BOUNDS["max_pixels"]}
        seen = oracle.processor.image_processor([picture()], size=bounds, return_tensors="pt")
        inputs |= {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]}
        text += "<|vision_start|>" + "<|image_pad|>" * int(seen["image_grid_thw"].prod() // 4) + "<|vision_end|>"
    written = f"<|im_start|>user\n{text}What?<|im_end|>\n<|im_start|>assistant\n"
    assert config.video_token_id != config.image_token_id
    return {**dict(oracle.tok(written, return_tensors="pt")), **inputs}


_FILM = {"video_fps": film.SAMPLED_FPS, **film.BOUNDS}
CASES: dict[str, Case] = {
    "text": Case(_spoken(ONE), lambda o: o.text(_messages(*ONE))),
    "chelsie": Case(_spoken(ONE), lambda o: o.text(_messages(*ONE)), {"speaker": "Chelsie", "tokens": 6, "frames": 8}),
    "turns": Case(_spoken(SEVERAL), lambda o: o.text(_messages(*SEVERAL))),
    "sampled": Case(_spoken(ONE), lambda o: o.text(_messages(*ONE)), {"seed": 123}),
    "one token": Case(_spoken((ONE[1],)), lambda o: o.text(_messages(ONE[1])), {"tokens": 2, "frames": 12}),
    "two tokens": Case(_spoken((ONE[1],)), lambda o: o.text(_messages(ONE[1])), {"tokens": 3, "frames": 12}),
    "two frames": Case(_spoken(ONE), lambda o: o.text(_messages(*ONE)), {"tokens": 6, "frames": 2}),
    "stop id": Case(_spoken(ONE), lambda o: o.text(_messages(*ONE)), {"eos": (22,), "frames": 20}),
    "audio": Case(
        (("user", (AUDIO, TextPart("What can you hear?"))),),
        lambda o: o.media(_typed("audio", text="What can you hear?"), audio=[tone()]),
    ),
    # The Thinker ends by itself here, after 24 tokens ...
    "image": Case(
        (("user", (IMAGE, TextPart("What?"))),),
        lambda o: o.media(_typed("image", text="What?"), images=[picture()]),
        {"tokens": 30},
    ),
    # ... and the Talker here, after 23 frames.
    "natural end": Case(_spoken(WHO), lambda o: o.text(_messages(*WHO)), {"speaker": "Aiden", "tokens": 16, "frames": 36}),
    "audio and image": Case(
        (("user", (AUDIO, IMAGE, TextPart("What?"))),),
        lambda o: o.media(_typed("audio", "image", text="What?"), audio=[tone()], images=[picture()]),
    ),
    "images over turns": Case(
        (
            ("user", (TextPart("What?"), *(ImagePart(png(image)) for image in pictures()[:3]))),
            ("assistant", _say("Yes.")),
            ("user", (ImagePart(png(pictures()[3])), TextPart("And this?"))),
        ),
        lambda o: o.media(
            [
                {"role": "user", "content": [{"type": "text", "text": "What?"}, *({"type": "image"} for _ in range(3))]},
                {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
                *_typed("image", text="And this?"),
            ],
            images=pictures(),
        ),
    ),
    "video": Case((("user", (VideoPart(film.mp4()), TextPart("What?"))),), lambda o: _film_inputs(o, False), media=_FILM),
    "video with sound": Case(
        (("user", (VideoPart(film.mp4()), TextPart("What?"))),),
        lambda o: _film_inputs(o, True),
        media={**_FILM, "use_audio_in_video": True},
    ),
    "video and image": Case(
        (("user", (VideoPart(film.mp4()), IMAGE, TextPart("What?"))),),
        lambda o: _film_inputs(o, False, image=True),
        media=_FILM,
    ),
}
