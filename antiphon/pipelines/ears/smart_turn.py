"""Smart Turn v3.2: does this utterance sound finished? (pipecat-ai/smart-turn, BSD-2)

A Whisper encoder with a classifier on top: the last eight seconds at 16 kHz, zero mean and unit variance, padded in front
with silence, as log-mel [80, 800] -> P(complete).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.log_mel import RATE, log_mel

WEIGHT: Final = "smart-turn-v3.2"
FILE: Final = "smart-turn-v3.2-cpu.onnx"
SECONDS: Final = 8


def features(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 [n] at 16 kHz -> [80, 800]."""
    heard = samples[-SECONDS * RATE :]
    padded = np.zeros(SECONDS * RATE, np.float32)
    if len(heard):
        padded[len(padded) - len(heard) :] = heard
    # As the model's own feature extractor does: normalised over the padded eight seconds.
    padded = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
    return log_mel(padded.astype(np.float32))


class SmartTurn:
    """One network, one thread of compute; not reentrant."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._net: Any = onnxruntime.InferenceSession(str(folder / FILE), options, providers=["CPUExecutionProvider"])

    def score(self, utterances: Sequence[NDArray[np.float32]]) -> list[float]:
        """P(complete) of each utterance (float32 16 kHz, any length)."""
        batch = np.stack([features(u) for u in utterances])
        return [float(p) for p in self._net.run(None, {"input_features": batch})[0].reshape(-1)]
