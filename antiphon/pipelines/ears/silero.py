"""Silero VAD v6 through ONNX Runtime, batched over voices.

The network sees 512 new samples behind 64 of the window before (snakers4/silero-vad, utils_vad.py: OnnxWrapper) and
carries an LSTM state. Both belong to a voice and live in a ``Voice``; the network itself is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
WINDOW: Final = 512
CONTEXT: Final = 64
WEIGHT: Final = "silero-vad"
FILE: Final = "silero_vad_16k_op15.onnx"
_RATE_INPUT = np.array(RATE, np.int64)


def _zeros() -> NDArray[np.float32]:
    return np.zeros((2, 128), np.float32)


@dataclass
class Voice:
    """What the network remembers of one stream: its state [2, 128] and the last 64 samples."""

    state: NDArray[np.float32] = field(default_factory=_zeros)
    context: NDArray[np.float32] = field(default_factory=lambda: np.zeros(CONTEXT, np.float32))

    def reset(self) -> None:
        self.state = _zeros()
        self.context = np.zeros(CONTEXT, np.float32)


class Silero:
    """One network, one thread of compute. ``score`` is not reentrant."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._net: Any = onnxruntime.InferenceSession(str(folder / FILE), options, providers=["CPUExecutionProvider"])

    def score(self, voices: Sequence[Voice], windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """P(speech) of the next window of each voice: float32 [B, 512] -> float32 [B]. The voices move on by it."""
        feed = np.concatenate([np.stack([v.context for v in voices]), windows], axis=1)
        state = np.stack([v.state for v in voices], axis=1)
        scores, after = self._net.run(None, {"input": feed, "state": state, "sr": _RATE_INPUT})
        for i, voice in enumerate(voices):
            voice.state = after[:, i]
            voice.context = windows[i, -CONTEXT:].copy()
        return np.asarray(scores[:, 0], np.float32)

    def scan(self, samples: NDArray[np.float32], voice: Voice | None = None) -> NDArray[np.float32]:
        """Each whole window of a recording in turn, the rest padded with silence: float32 [n] -> float32 [ceil(n / 512)]."""
        voice = voice or Voice()
        count = -(-len(samples) // WINDOW)
        padded = np.zeros(count * WINDOW, np.float32)
        padded[: len(samples)] = samples
        return np.array([self.score([voice], padded[None, at : at + WINDOW])[0] for at in range(0, len(padded), WINDOW)])
