"""Not a recogniser: it counts the seconds of each window aloud ("one two three"), and what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.whisper import Decoded

FIRST_TIME = 1000
COUNT = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"]


class StubVocabulary:
    end, first_time = 900, FIRST_TIME

    def start(self, language: str, *, translate: bool = False) -> list[int]:
        if language not in ("en", "de"):
            raise Refused(f"unknown language {language!r}", code="unsupported_language", param="language")
        return [901, 902, 903]

    def bias(self, prompt: str, keywords: Sequence[str], language: str) -> list[int]:
        return []

    def text(self, ids: Sequence[int]) -> str:
        return "".join(f" {COUNT[i]}" for i in ids if i < self.end)


class StubPending:
    def __init__(self, decoded: Decoded) -> None:
        self.finished = False
        self.decoded = decoded

    def done(self) -> bool:
        return self.finished

    def result(self) -> Decoded:
        return self.decoded


def said_twice(once: Decoded) -> Decoded:
    """The whole of it again, and more sure of it."""
    words = once.tokens[1:-1]
    return Decoded((FIRST_TIME, *words, *words, once.tokens[-1]), f"{once.text} {once.text}", -0.05, 0.0, True, 0.0)


class StubRecogniser:
    def __init__(self) -> None:
        self.vocabulary = StubVocabulary()
        self.encoded: list[float] = []
        self.batches: list[int] = []
        self.unsure = False
        self.twice = False
        self.failing = False
        self.pending: list[StubPending] = []

    def encode(self, samples: Any, window_s: float) -> Any:
        if self.failing:
            raise RuntimeError("an encoder that fails")
        self.encoded.append(window_s)
        return np.full((int(50 * window_s), 1), len(samples) / 16_000, np.float32)

    def detect(self, encoded: Any) -> dict[str, float]:
        return {"en": 0.9, "de": 0.1}

    def decode(self, encoded: Any, prompts: Any, caps: Any, *, temperature: float = 0.0, beam: int = 1) -> list[Decoded]:
        self.batches.append(len(encoded))
        found = [self._decoded(float(e[0, 0]), -3.0 if self.unsure else -0.1) for e in encoded]
        return [said_twice(one) for one in found] if self.twice else found

    def decode_full(self, samples: Any, prompt: Any, cap: int, *, temperature: float = 0.0, beam: int = 1) -> StubPending:
        self.pending.append(StubPending(self._decoded(len(samples) / 16_000, -0.1)))
        return self.pending[-1]

    @property
    def free(self) -> bool:
        return all(p.finished for p in self.pending)

    def _decoded(self, seconds: float, logprob: float) -> Decoded:
        count = max(1, int(seconds))
        tokens = (FIRST_TIME, *range(count), FIRST_TIME + int(seconds * 50))
        return Decoded(tokens, " ".join(COUNT[:count]), logprob, 0.0, True, 0.0)
