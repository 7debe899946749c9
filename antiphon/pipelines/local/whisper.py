"""The recogniser: Whisper through CTranslate2, int8, one thread; encoder windows as short as the speech allows.

CTranslate2's encoder takes fewer frames than the 3,000 Whisper was trained on, so three seconds of speech need not pay
for thirty. What that costs in quality, and the rule that wins it back, stands in ``reading``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.local.whisper_tokens import Vocabulary
from antiphon.pipelines.log_mel import RATE, log_mel
from antiphon.pipelines.threads import granted

WEIGHT: Final = "whisper-base-ct2"
FULL_S: Final = 30.0
FRAMES_PER_S: Final = 50
"""Encoder frames in a second: what a timestamp token counts."""

Encoded = NDArray[np.float32]
"""What the decoder reads: [frames, 512]."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """``tokens`` with times among them. ``avg_logprob`` over all of them and the end; ``whole``: it ended by itself."""

    tokens: tuple[int, ...]
    text: str
    avg_logprob: float
    no_speech_prob: float
    whole: bool
    temperature: float

    @property
    def compression_ratio(self) -> float:
        return compression_ratio(self.text)


def compression_ratio(text: str) -> float:
    """Bytes against zlib's; text that repeats itself compresses well. 1.0 for none."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 1.0


class Pending:
    """A reading that CTranslate2 does on a thread of its own."""

    def __init__(self, handle: Any, finish: Any) -> None:
        self._handle = handle
        self._finish = finish

    def done(self) -> bool:
        return bool(self._handle.done())

    def result(self) -> Decoded:
        decoded: Decoded = self._finish(self._handle.result())
        return decoded


class Recogniser:
    """Calls block and are not reentrant, but for ``decode_full``, which runs beside them."""

    def __init__(self, folder: Path) -> None:
        import ctranslate2

        # Two workers share one set of weights: the second is for ``decode_full``, so that nobody waits behind it.
        self._model: Any = ctranslate2.models.Whisper(
            str(folder), device="cpu", compute_type="int8", intra_threads=granted(), inter_threads=2
        )
        self._view: Any = ctranslate2.StorageView.from_array
        self.vocabulary = Vocabulary(folder)
        self._full: Pending | None = None

    def encode(self, samples: NDArray[np.float32], window_s: float) -> Encoded:
        """float32 16 kHz, padded with silence to ``window_s`` (at most 30) -> [50 * window_s, 512]."""
        features = self._features(samples, window_s)
        encoded: Encoded = np.array(self._model.encode(self._view(features), to_cpu=True), dtype=np.float32)[0]
        return encoded

    def detect(self, encoded: Encoded) -> dict[str, float]:
        """Each language's probability."""
        found = self._model.detect_language(self._view(np.ascontiguousarray(encoded[None])))[0]
        return {str(token)[2:-2]: float(p) for token, p in found}

    def decode(
        self,
        encoded: Sequence[Encoded],
        prompts: Sequence[list[int]],
        caps: Sequence[int],
        *,
        temperature: float = 0.0,
        beam: int = 1,
    ) -> list[Decoded]:
        """Read several windows of equal length with prompts of equal length; each at most ``caps[i]`` tokens.

        Greedy and batched gives each what it gets alone.
        """
        features = self._view(np.ascontiguousarray(np.stack(encoded)))
        found = self._model.generate(features, list(prompts), **_how(max(caps), len(prompts[0]), temperature, beam))
        return [self._decoded(one, cap, temperature) for one, cap in zip(found, caps, strict=True)]

    def decode_full(
        self, samples: NDArray[np.float32], prompt: list[int], cap: int, *, temperature: float = 0.0, beam: int = 1
    ) -> Pending:
        """Encode and read the full 30 s window, as Whisper was trained, without waiting for it."""
        features = self._view(self._features(samples, FULL_S))
        handle = self._model.generate(features, [prompt], asynchronous=True, **_how(cap, len(prompt), temperature, beam))[0]
        self._full = Pending(handle, lambda found: self._decoded(found, cap, temperature))
        return self._full

    @property
    def free(self) -> bool:
        """Whether no full window is being read."""
        return self._full is None or self._full.done()

    def align(self, encoded: Encoded, start: list[int], text: Sequence[int], frames: int) -> list[tuple[int, float]]:
        """Seconds at which each text token begins, by dynamic time warping over cross attention: (token index, s).

        ``frames``: encoder frames (20 ms) that hold sound.
        """
        features = self._view(np.ascontiguousarray(encoded[None]))
        # CTranslate2 counts spectrogram frames (10 ms) here and halves them itself.
        found = self._model.align(features, start, [list(text)], 2 * min(frames, len(encoded)))[0]
        times: dict[int, float] = {}
        for token, frame in found.alignments:
            times.setdefault(int(token), int(frame) / FRAMES_PER_S)
        return sorted(times.items())

    def _features(self, samples: NDArray[np.float32], window_s: float) -> NDArray[np.float32]:
        padded = np.zeros(int(min(window_s, FULL_S) * RATE), np.float32)
        kept = samples[: len(padded)]
        padded[: len(kept)] = kept
        return log_mel(padded)[None]

    def _decoded(self, found: Any, cap: int, temperature: float) -> Decoded:
        tokens = tuple(found.sequences_ids[0])
        whole = len(tokens) < cap
        tokens = tokens[:cap]
        return Decoded(
            tokens,
            self.vocabulary.text(tokens).strip(),
            float(found.scores[0]),
            float(found.no_speech_prob),
            whole,
            temperature,
        )


def _how(cap: int, prompt: int, temperature: float, beam: int) -> dict[str, Any]:
    sampled = temperature > 0
    return {
        "beam_size": 1 if sampled else beam,
        # CTranslate2 makes at most half of max_length, and no more than what the prompt leaves of it.
        "max_length": min(448, max(2 * cap, cap + prompt)),
        "return_scores": True,
        "return_no_speech_prob": True,
        "sampling_topk": 0 if sampled else 1,
        "sampling_temperature": temperature if sampled else 1.0,
    }
