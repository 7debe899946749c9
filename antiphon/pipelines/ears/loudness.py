"""How loud a window is against how this voice has spoken lately. Pure.

A voice detector lets go 45-77 ms after the voice has ended; the level tells it to 4 ms. And it knows no level: the
agent's own voice, come back from a loudspeaker 20 dB down, scores like anybody's. What tells them apart is that a user who
interrupts speaks as loudly as he did before.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 64
RATIO: Final = 0.02
"""-34 dB."""
FADE: Final = 0.998
"""For each window of speech: a voice that turns softer, or another speaker, is followed within a dozen seconds."""
FAINTEST: Final = 1e-2
"""The speech level assumed before anybody has spoken, and never less: -40 dBFS."""
SPEECH: Final = 0.5
NEAR: Final = 0.25
"""-12 dB: what is fainter, while the agent's own voice may come back, is taken for that."""
UNHEARD: Final = 0.05
"""The speech level assumed for that as long as the user has not spoken."""
NONE: Final = -1


class Loudness:
    """Follows one voice through its windows."""

    def __init__(self) -> None:
        self._level = FAINTEST
        self._heard = False

    def last_loud(self, window: NDArray[np.float32], start: int, p: float) -> int:
        """The last loud sample of ``window``, whose first is number ``start``; -1 when there is none. ``p``: its score."""
        levels = _levels(window)
        if p >= SPEECH:
            self._heard = True
            self._level = max(self._level * FADE, float(levels.max()), FAINTEST)
        loud = np.flatnonzero(levels > RATIO * self._level)
        return start + BLOCK * (int(loud[-1]) + 1) - 1 if len(loud) else NONE

    def near(self, window: NDArray[np.float32]) -> bool:
        """Whether it is as loud as the user himself would be."""
        usual = self._level if self._heard else UNHEARD
        return float(_levels(window).max()) >= NEAR * usual


def _levels(window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Root mean square of each block of 4 ms."""
    levels: NDArray[np.float32] = np.sqrt(np.square(window.reshape(-1, BLOCK)).mean(axis=1))
    return levels
