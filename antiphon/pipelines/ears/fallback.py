"""The voice detector for when the network cannot be run: WebRTC's Gaussian mixtures, a poor judge but never absent.

It takes any steady hum and most keyboards for speech, so it only stands in, and every window it scores is counted.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
FRAME: Final = 480
"""30 ms, the longest it takes: the end of a 512-sample window."""
VOICED: Final = 0.9
STRICTNESS: Final = 3
LEVEL: Final = 0.02
"""Without the webrtcvad module, louder than -34 dBFS is taken for speech."""


class Fallback:
    """Stateless as used here: one detector for every voice."""

    def __init__(self) -> None:
        self._vad: Any = None
        try:
            import webrtcvad
        except ImportError:
            return
        self._vad = webrtcvad.Vad(STRICTNESS)

    def score(self, window: NDArray[np.float32]) -> float:
        """0.9 for speech, else 0, of a float32 window at 16 kHz of at least 480 samples."""
        if self._vad is None:
            return VOICED if float(np.sqrt(np.square(window).mean())) > LEVEL else 0.0
        pcm = (window[-FRAME:].clip(-1.0, 1.0) * 32767).astype("<i2").tobytes()
        return VOICED if self._vad.is_speech(pcm, RATE) else 0.0
