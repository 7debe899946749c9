"""Ears for many sessions: every 512-sample window scored in order, one batched inference for all that wait.

    ears = Ears()                               # loads; raises WeightError
    ear = ears.open(on_scores)                  # on an asyncio loop
    ear.push(samples); ear.score_turn(utterance, done); ear.close()
    ears.shut_down()

Two threads of its own, so that a turn's score (50 ms) never holds up a window's (0.1 ms). Scores come back on the loop
that opened the ear, in order. Digital silence costs nothing: it is scored 0 without the network, whose state is reset
after two seconds of it. A session whose audio comes faster than it can be scored has its oldest windows scored by the
fallback, as when the network fails; ``stats`` counts both.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines import weights
from antiphon.pipelines.ears import silero
from antiphon.pipelines.ears.fallback import Fallback
from antiphon.pipelines.ears.loudness import NONE, Loudness
from antiphon.pipelines.ears.silero import RATE, WINDOW, Silero, Voice
from antiphon.pipelines.ears.turns import TurnScorer

SILENCE: Final = 1e-3
"""A window whose loudest sample lies below -60 dBFS is digital silence."""
RESET_WINDOWS: Final = 2 * RATE // WINDOW
"""Silent windows after which the network forgets what it heard."""
BACKLOG: Final = 60 * RATE // WINDOW
"""Windows a session may have waiting (60 s) before its oldest go to the fallback."""
BATCH: Final = 64
DELIVER: Final = 16
"""Scores of one session handed over together at most, so that a burst of audio does not wake the loop for each window."""
ECHO_P: Final = 0.2
"""The most that a window scores which is taken for the agent's own voice: below every sensible threshold."""
RETRY_S: Final = 1.0
"""After a failure the network is left alone for so long."""

log = logging.getLogger(__name__)


class Score(NamedTuple):
    """``end``: the sample behind the window, counted from the ear's first; ``p``: of speech; ``loud``: the last sample
    within 34 dB of recent speech, -1 when there is none."""

    end: int
    p: float
    loud: int


OnScores = Callable[[list[Score]], None]


class Detector(Protocol):
    """What scores windows: ``silero.Silero``."""

    def score(self, voices: Sequence[Voice], windows: NDArray[np.float32]) -> NDArray[np.float32]: ...


class Ear:
    """One session's place. All methods are for the loop that opened it."""

    def __init__(self, ears: Ears, on_scores: OnScores, loop: asyncio.AbstractEventLoop) -> None:
        self._ears = ears
        self._on_scores = on_scores
        self.loop = loop
        self.closed = False
        # The rest belongs to the ears' thread, but for ``inbox``, ``pushed`` and ``echo_until`` (under their lock).
        self.inbox: deque[NDArray[np.float32]] = deque()
        self.pushed = self.echo_until = 0
        self.waiting = np.zeros(0, np.float32)
        self.scored = 0
        self.silent = RESET_WINDOWS
        self.voice = Voice()
        self.loudness = Loudness()
        self.ready: list[Score] = []

    def push(self, samples: NDArray[np.float32]) -> None:
        """float32 at 16 kHz, any number of samples; they are copied."""
        if not self.closed and len(samples):
            self._ears._take(self, np.array(samples, np.float32))

    def expect_echo(self, samples: int) -> None:
        """In the next ``samples`` at 16 kHz the agent's own voice may come back; 0: it is silent from now on.

        Meanwhile a window 12 dB fainter than the user has spoken is no speech. Call it whenever the lead of the playback
        changes, with some tail for the way through the air.
        """
        if not self.closed:
            self._ears._expect(self, samples)

    def score_turn(self, utterance: NDArray[np.float32], done: Callable[[float | None], None]) -> None:
        """``done`` gets P(complete) on the loop, None when it could not be told; never after ``close``."""
        if not self.closed:
            self._ears._turns.ask(utterance, lambda p: self._hand(lambda: done(p)))

    def close(self) -> None:
        """No callback comes after this. Idempotent."""
        if not self.closed:
            self.closed = True
            self._ears._drop(self)

    def _hand(self, call: Callable[[], None]) -> None:
        """From any thread: ``call`` on the ear's loop, unless it is closed by then."""
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.closed else call())
        except RuntimeError:  # the loop is closed: its session is gone without having said so
            self.closed = True


class Ears:
    """``turns`` False: without Smart Turn. ``detector`` replaces Silero (for tests)."""

    def __init__(
        self,
        *,
        turns: bool = True,
        silero_folder: Path | None = None,
        turn_folder: Path | None = None,
        detector: Detector | None = None,
    ) -> None:
        self._net: Detector = detector or Silero(silero_folder or weights.path(silero.WEIGHT))
        self._fallback = Fallback()
        self._turns = TurnScorer(turn_folder, enabled=turns)
        self._lock = threading.Condition()
        self._ears: list[Ear] = []
        self._over = False
        self._retry_at = 0.0
        self._counts = dict.fromkeys(("windows", "silent", "batches", "fallback", "failures", "overrun", "echo"), 0)
        self._thread = threading.Thread(target=self._work, name="ears", daemon=True)
        self._thread.start()

    def open(self, on_scores: OnScores) -> Ear:
        """A place for one session. ``on_scores`` is called on the running loop."""
        ear = Ear(self, on_scores, asyncio.get_running_loop())
        with self._lock:
            self._ears.append(ear)
        return ear

    def stats(self) -> dict[str, int]:
        """Counters since the start, and the sessions that are open.

        ``windows`` scored in all; of them ``silent`` without the network and ``fallback`` by the stand-in, because of so
        many ``failures`` of the network or, for ``overrun`` of them, a backlog; ``echo``: speech taken for the agent's own
        voice; ``batches``: inferences.
        """
        with self._lock:
            return {"sessions": len(self._ears), **self._counts, **self._turns.stats()}

    def shut_down(self) -> None:
        """End both threads. Idempotent."""
        with self._lock:
            self._over = True
            self._lock.notify()
        self._thread.join()
        self._turns.shut_down()

    # ---- from the loops
    def _take(self, ear: Ear, samples: NDArray[np.float32]) -> None:
        with self._lock:
            ear.inbox.append(samples)
            ear.pushed += len(samples)
            self._lock.notify()

    def _expect(self, ear: Ear, samples: int) -> None:
        with self._lock:
            ear.echo_until = ear.pushed + samples

    def _drop(self, ear: Ear) -> None:
        with self._lock:
            if ear in self._ears:
                self._ears.remove(ear)

    # ---- the thread
    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._over and not any(e.inbox or len(e.waiting) >= WINDOW for e in self._ears):
                    self._lock.wait()
                if self._over:
                    return
                ears = [e for e in self._ears if not e.closed]
                for ear in ears:
                    if ear.inbox:
                        ear.waiting = np.concatenate([ear.waiting, *ear.inbox])
                        ear.inbox.clear()
            self._round([e for e in ears if len(e.waiting) >= WINDOW])

    def _round(self, ears: Sequence[Ear]) -> None:
        """The next window of each, and the scores that are ready to their sessions."""
        heard: list[tuple[Ear, NDArray[np.float32]]] = []
        for ear in ears:
            if len(ear.waiting) > BACKLOG * WINDOW:
                self._counts["overrun"] += 1
                self._stand_in(ear, self._next(ear))
                continue
            window = self._next(ear)
            if float(np.abs(window).max()) < SILENCE:
                self._silence(ear, window)
                continue
            ear.silent = 0
            heard.append((ear, window))
        for at in range(0, len(heard), BATCH):
            self._score(heard[at : at + BATCH])
        for ear in ears:
            if ear.ready and (len(ear.waiting) < WINDOW or len(ear.ready) >= DELIVER):
                scores, ear.ready = ear.ready, []
                ear._hand(lambda ear=ear, scores=scores: ear._on_scores(scores))  # type: ignore[misc]

    def _next(self, ear: Ear) -> NDArray[np.float32]:
        window, ear.waiting = ear.waiting[:WINDOW], ear.waiting[WINDOW:]
        return window

    def _silence(self, ear: Ear, window: NDArray[np.float32]) -> None:
        self._counts["silent"] += 1
        ear.silent += 1
        ear.voice.context = window[-silero.CONTEXT :].copy()
        if ear.silent == RESET_WINDOWS:
            ear.voice.reset()
        self._note(ear, 0.0, NONE)

    def _score(self, heard: Sequence[tuple[Ear, NDArray[np.float32]]]) -> None:
        if time.monotonic() < self._retry_at:
            for ear, window in heard:
                self._stand_in(ear, window)
            return
        try:
            scores = self._net.score([ear.voice for ear, _ in heard], np.stack([window for _, window in heard]))
        except Exception:  # a failing network must not deafen the sessions; it is logged and counted
            log.exception("the voice detector failed; its fallback stands in")
            self._counts["failures"] += 1
            self._retry_at = time.monotonic() + RETRY_S
            for ear, window in heard:
                ear.voice.reset()
                self._stand_in(ear, window)
            return
        self._counts["batches"] += 1
        for (ear, window), p in zip(heard, scores.tolist(), strict=True):
            self._judge(ear, window, p)

    def _stand_in(self, ear: Ear, window: NDArray[np.float32]) -> None:
        self._counts["fallback"] += 1
        self._judge(ear, window, self._fallback.score(window))

    def _judge(self, ear: Ear, window: NDArray[np.float32], p: float) -> None:
        if p > ECHO_P and ear.scored < ear.echo_until and not ear.loudness.near(window):
            self._counts["echo"] += 1
            self._note(ear, ECHO_P, NONE)
        else:
            self._note(ear, p, ear.loudness.last_loud(window, ear.scored, p))

    def _note(self, ear: Ear, p: float, loud: int) -> None:
        self._counts["windows"] += 1
        ear.scored += WINDOW
        ear.ready.append(Score(ear.scored, p, loud))
