"""Smart Turn on a thread of its own: those that ask at the same time are scored together."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines import weights
from antiphon.pipelines.ears import smart_turn
from antiphon.pipelines.log_mel import RATE

Done = Callable[[float | None], None]
BATCH: Final = 4
WAITING: Final = 32
"""Utterances that may wait; a score that comes later than the patience for it is worth nothing."""

log = logging.getLogger(__name__)


class TurnScorer:
    """``ask`` from any thread; ``done`` is called on this thread. Not ``enabled``: every answer is None."""

    def __init__(self, folder: Path | None = None, *, enabled: bool = True) -> None:
        self._net: smart_turn.SmartTurn | None = None
        self._lock = threading.Condition()
        self._asked: deque[tuple[NDArray[np.float32], Done]] = deque()
        self._over = False
        self._counts = dict.fromkeys(("turns", "turn_failures", "turns_refused"), 0)
        self._thread: threading.Thread | None = None
        if enabled:
            self._net = smart_turn.SmartTurn(folder or weights.path(smart_turn.WEIGHT))
            self._net.score([np.zeros(RATE, np.float32)])
            self._thread = threading.Thread(target=self._work, name="turns", daemon=True)
            self._thread.start()

    def ask(self, utterance: NDArray[np.float32], done: Done) -> None:
        """P(complete) of a float32 16 kHz utterance, or None when too many wait or the network failed."""
        with self._lock:
            if self._thread is not None and not self._over and len(self._asked) < WAITING:
                self._asked.append((np.array(utterance[-smart_turn.SECONDS * RATE :], np.float32), done))
                self._lock.notify()
                return
            self._counts["turns_refused"] += 1
        done(None)

    def stats(self) -> dict[str, int]:
        """``turns`` scored, ``turn_failures`` of the network, ``turns_refused``: too many waited, or not enabled."""
        with self._lock:
            return dict(self._counts)

    def shut_down(self) -> None:
        """End the thread; who still waits is told None. Idempotent."""
        with self._lock:
            self._over = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._asked and not self._over:
                    self._lock.wait()
                over = self._over
                count = len(self._asked) if over else min(BATCH, len(self._asked))
                batch = [self._asked.popleft() for _ in range(count)]
            scores = [None] * len(batch) if over else self._score([utterance for utterance, _ in batch])
            for (_, done), p in zip(batch, scores, strict=True):
                done(p)
            if over:
                return

    def _score(self, utterances: list[NDArray[np.float32]]) -> list[float | None]:
        assert self._net is not None
        try:
            scores: list[float | None] = [*self._net.score(utterances)]
            key = "turns"
        except Exception:  # a failing network costs a score, never a session; it is logged and counted
            log.exception("Smart Turn failed")
            scores, key = [None] * len(utterances), "turn_failures"
        with self._lock:
            self._counts[key] += len(utterances)
        return scores
