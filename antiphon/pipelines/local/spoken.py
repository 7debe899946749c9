"""What travels between the stages of the voice: segmenter -> talker -> code2wav."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.outputs import Mark


class SpokenClause(msgspec.Struct, frozen=True):
    """A clause as it is to be said: the segmenter's chunk.

    ``start``/``end``: its place in the Thinker's own text. ``word_ends``: for each whitespace-separated word of ``text``
    the offset in the Thinker's text at which it has been said. ``gap_ms``: the silence after it at normal speed.
    """

    text: str
    start: int
    end: int
    word_ends: tuple[int, ...]
    gap_ms: float = 0.0


class Frames(msgspec.Struct, frozen=True):
    """The talker's chunk: one clause as the net drew it, F frames of 12.5 ms (300 samples at 24 kHz).

    ``spectra`` float32 [5, 601, F]: log amplitude and phase/pi (before tanh) of the harmonic part, log amplitude of the
    noise, log amplitude and phase of the free part. ``f0`` float32 [F] in Hz; ``noise`` complex64 [601, F], drawn once.
    Frames ``[start, stop)`` are to be heard. ``marks`` count samples from frame ``start``.
    """

    spectra: NDArray[np.float32]
    f0: NDArray[np.float32]
    noise: NDArray[np.complex64]
    start: int
    stop: int
    marks: tuple[Mark, ...] = ()
    exact: bool = True
