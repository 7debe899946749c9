"""When the user's turn begins, may be over, is over. Pure: scores and sample counts in, decisions out.

Silence is dated from the last *loud* sample, because Silero lets go 45-77 ms late; it is counted in samples received and
not in windows, once every whole window is scored and the last was not voiced; while scores lag behind (a recording sent
faster than it is spoken) it is counted as far as they have come. A late score counts for its own samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from antiphon.session.events import IN_RATE, WINDOW, SpeechScored

CLEAR = 0.15
"""Two voiced windows in a row begin a turn when they are so far above the threshold on average; else it takes four.
(Coughs, keys and pink noise stay under 0.45 in Silero v6; the first windows of words jump over 0.9.)"""
VOICED_WINDOWS = 4
HYSTERESIS = 0.15
MAYBE = 1_024
"""Samples of dated silence (64 ms) after which the turn may be over."""
ONSET_GAP = 3
"""Unvoiced windows in a row that end a beginning which must last longer than a word's first sounds."""


class Turn(Enum):
    STARTED = auto()
    MAYBE_OVER = auto()
    RESUMED = auto()
    STOPPED = auto()


@dataclass
class Detector:
    """Follows one voice. ``silence_ms`` is how long it must be silent; whoever owns this may change it at any time.

    ``onset_ms``: voice needed for a start, where that is more than what makes it voice. ``last_voiced``: one past the
    last voiced sample. ``voiced``: windows with voice in this turn.
    """

    threshold: float
    silence_ms: float
    onset_ms: int = 0
    speaking: bool = False
    onset: int = 0
    last_voiced: int = 0
    scored: int = 0
    received: int = 0
    voiced: int = 0
    maybe: bool = False
    _run: int = 0
    _gap: int = 0
    _before: float = 0.0
    _clear: bool = False

    def on_audio(self, total: int) -> Turn | None:
        self.received = max(self.received, total)
        return self.over()

    def on_score(self, score: SpeechScored) -> Turn | None:
        if score.end <= self.scored:
            return None  # late or repeated: what it says is behind us
        self.scored = score.end
        self.received = max(self.received, score.end)
        return self._while_speaking(score) if self.speaking else self._while_silent(score)

    def _while_silent(self, score: SpeechScored) -> Turn | None:
        if score.p < self.threshold:
            self._gap += 1
            self._before = 0.0
            if self._gap > (ONSET_GAP if self.onset_ms else 0):
                self._forget_onset()
            return None
        if self._run == 0:
            self.onset = score.end - WINDOW
        self._run += 1
        self._gap = 0
        self._clear |= self._before + score.p >= 2 * min(self.threshold + CLEAR, 0.95)
        self._before = score.p
        self.last_voiced = score.end
        if not (self._clear or self._run >= VOICED_WINDOWS) or self._run * WINDOW < self.onset_ms * IN_RATE // 1000:
            return None
        self.speaking, self.maybe, self.voiced = True, False, self._run
        self._forget_onset()
        return Turn.STARTED

    def _while_speaking(self, score: SpeechScored) -> Turn | None:
        voiced = score.p >= self.threshold
        fine = score.loud is not None
        loud = score.loud if score.loud is not None else -1
        self.voiced += voiced
        if voiced or (loud >= 0 and score.p >= self.threshold - HYSTERESIS):
            if loud >= 0:
                self.last_voiced = max(self.last_voiced, loud + 1)
            elif not fine or self.maybe:
                self.last_voiced = score.end
            resumed, self.maybe = self.maybe, False
            return Turn.RESUMED if resumed else None
        if not self.maybe and score.end - self.last_voiced >= MAYBE:
            self.maybe = True
            return self.over() or Turn.MAYBE_OVER
        return self.over()

    def over(self) -> Turn | None:
        """STOPPED when the silence has lasted. To be asked again when ``silence_ms`` was shortened."""
        silent = self.known - self.last_voiced >= self.silence_ms * IN_RATE / 1000
        if self.speaking and self.maybe and silent:
            self.reset()
            return Turn.STOPPED
        return None

    @property
    def known(self) -> int:
        """Up to which sample there is no doubt: all that came, unless it holds whole windows without a score."""
        return self.received if self.received - self.scored < WINDOW else self.scored

    @property
    def beginning(self) -> bool:
        """Something was voiced that may yet become a turn: its samples must stay."""
        return not self.speaking and self._run > 0

    def reset(self) -> None:
        self.speaking = self.maybe = False
        self._forget_onset()

    def _forget_onset(self) -> None:
        self._run = self._gap = 0
        self._before, self._clear = 0.0, False


@dataclass(frozen=True, slots=True)
class Patience:
    """How long semantic_vad waits, in ms of silence: an utterance that sounds complete, one that does not at all, and a
    short one that does not. The protocol allows up to 2, 4 and 8 s; nobody wants to wait that long for an answer."""

    complete: float
    incomplete: float
    short: float


PATIENCE = {
    "high": Patience(200, 1_000, 500),
    "medium": Patience(250, 1_600, 700),
    "auto": Patience(250, 1_600, 700),
    "low": Patience(400, 3_000, 1_200),
}
COMPLETE = 0.5
SHORT_MS = 1_200
"""Scores of utterances under this length say little (a whole "Hello world" of 1 s scored 0.06)."""


def patience_ms(p: float | None, eagerness: str, voiced_ms: float) -> float:
    """The silence that ends an utterance with this score; None: there is none (yet), wait as for a short one."""
    patience = PATIENCE[eagerness]
    if p is None:
        return patience.short
    if p >= COMPLETE:
        return patience.complete
    most = patience.short if voiced_ms < SHORT_MS else patience.incomplete
    return patience.complete + (most - patience.complete) * (1 - max(p, 0.0) / COMPLETE)
