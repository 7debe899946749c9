"""The user's side: the input buffer, the turns in it, and the items they become.

``buffer_start`` is the first sample that no item owns and that may still be asked for: the pre-roll while nobody speaks,
everything since the last commit when the client commits by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from antiphon.session.conversation import Item
from antiphon.session.core import Core
from antiphon.session.detection import PREFIX_PADDING_MS
from antiphon.session.early import Anticipation
from antiphon.session.errors import Refused, error_event
from antiphon.session.events import (
    IN_RATE,
    WINDOW,
    Abort,
    ForgetAudio,
    ScoreTurn,
    Send,
    SpeechScored,
    TurnScored,
)
from antiphon.session.memory import Memory
from antiphon.session.request import Span
from antiphon.session.responses import Responses
from antiphon.session.transcripts import Transcripts
from antiphon.session.turn import MAYBE, Detector, Turn, patience_ms

TAIL = MAYBE
"""Input samples after the last voiced one that the model still gets."""
ATTEMPTS = 2
"""Early answers that one turn may cost, and transcript guesses."""
ATTEMPT_AGAIN_MS = 2_000
"""So much voice gives a turn one of each back: long turns have pauses too, and their end is to be met as soon as any."""
SHORTEST_EARLY_MS = 224
"""Less voice than this is often the first syllable before a stop, seldom a whole utterance: no answer is spent on it."""
SHORTEST_COMMIT_MS = 100
LONGEST_TURN_S = 300
"""Speech that does not end (a television, say) becomes an item after this long, and the next one goes on."""
LONGEST_BUFFER_S = 900
LONGEST_NOISE_S = 1.0
"""Voice of this length is speech, whatever its transcript: an answer that it cut does not go on."""
SCORED_S = 8
"""The end of an utterance that the turn model looks at."""


@dataclass
class Speech:
    """The turn being spoken. ``start``: its first sample, pre-roll included."""

    item_id: str
    start: int
    answers: int = ATTEMPTS
    guesses: int = ATTEMPTS
    given_back: int = 0
    scoring: str | None = None


class Hearing:
    """Owns the detector, the buffer's bounds and the current turn."""

    def __init__(
        self,
        core: Core,
        memory: Memory,
        responses: Responses,
        anticipation: Anticipation,
        transcripts: Transcripts,
    ) -> None:
        self._core = core
        self._memory = memory
        self._responses = responses
        self._anticipation = anticipation
        self._transcripts = transcripts
        self._detector: Detector | None = None
        self._speech: Speech | None = None
        self._announced: str | None = None  # the item id of a turn that goes on without a detector
        self.received = 0
        self.buffer_start = 0
        self.apply_turn_detection()

    # ---- what is heard

    def on_audio(self, total: int) -> None:
        self.received = max(self.received, total)
        detector = self._detector
        if detector is None:
            self._bound_buffer()
            return
        self._decide(detector.on_audio(self.received))
        if self._speech is None:
            self._forget_silence(detector)
        elif detector.scored - self._speech.start > LONGEST_TURN_S * IN_RATE:
            detector.reset()
            self._stop((self._speech.start, detector.scored))
        elif not detector.maybe:
            self._transcripts.hear((self._speech.start, detector.known))

    def on_score(self, score: SpeechScored) -> None:
        detector = self._detector
        if detector is None:
            return
        shortest = self._core.features.min_interruption_ms
        detector.onset_ms = shortest if shortest and self._responses.audible else 0
        self._decide(detector.on_score(score))
        if self._speech and detector.voiced * WINDOW > LONGEST_NOISE_S * IN_RATE:
            self._responses.stay_cut()

    def on_turn_score(self, event: TurnScored) -> None:
        detector, speech, policy = self._detector, self._speech, self._core.turn_detection
        if speech is None or speech.scoring != event.gen or detector is None or policy is None:
            return
        speech.scoring = None
        self._core.counts["turn_scores" if event.p is not None else "turn_scores_failed"] += 1
        if policy["type"] == "semantic_vad":
            detector.silence_ms = patience_ms(event.p, policy["eagerness"], self._voiced_ms(detector))
            self._decide(detector.over())

    @property
    def running(self) -> set[str]:
        """The score that is awaited."""
        return {self._speech.scoring} if self._speech and self._speech.scoring else set()

    @property
    def announced(self) -> str | None:
        """The id that speech_started has told, and under which an item is still to come."""
        return self._speech.item_id if self._speech else self._announced

    @property
    def speaking(self) -> bool:
        return self._speech is not None

    # ---- turns

    def _decide(self, turn: Turn | None) -> None:
        detector = self._detector
        if turn is None or detector is None:
            return
        if turn is Turn.STARTED:
            self._start(detector)
        elif self._speech is None:
            return
        elif turn is Turn.MAYBE_OVER:
            self._maybe_over(self._speech, detector)
        elif turn is Turn.RESUMED:
            self._await_silence(detector)
            self._unscore(self._speech)
            self._anticipation.drop("resumed")
            self._transcripts.drop_guess()
        else:
            self._stop((self._speech.start, self._end(detector)))

    def _start(self, detector: Detector) -> None:
        core, policy = self._core, self._core.turn_detection or {}
        start = max(self.buffer_start, detector.onset - self._padding())
        self._speech = Speech(core.new_id("item"), start)
        core.user_speaks = True
        self._await_silence(detector)
        self._announced = None
        core.counts["turns_started"] += 1
        core.emit("input_audio_buffer.speech_started", audio_start_ms=start * 1000 // IN_RATE, item_id=self._speech.item_id)
        self._responses.stir()
        self._transcripts.begin_turn(self._speech.item_id, start)
        if policy.get("interrupt_response") and core.converses and self._responses.interrupt():
            core.counts["interruptions"] += 1
        if self._responses.active is None:
            self._anticipation.prepare()

    def _maybe_over(self, speech: Speech, detector: Detector) -> None:
        core, policy = self._core, self._core.turn_detection or {}
        span = (speech.start, self._end(detector))
        self._give_back(speech, detector)
        if policy.get("type") == "semantic_vad":
            detector.silence_ms = patience_ms(None, policy["eagerness"], 0)
            speech.scoring = core.new_id("score")
            core.do(ScoreTurn(speech.scoring, (max(span[0], detector.scored - SCORED_S * IN_RATE), detector.scored)))
        if core.features.eager_transcript and speech.guesses:
            speech.guesses -= 1
            self._transcripts.guess(span)
        answers = core.converses and policy.get("create_response") and self._responses.active is None
        long_enough = self._voiced_ms(detector) >= max(SHORTEST_EARLY_MS, core.features.min_speech_ms)
        if answers and long_enough and speech.answers and core.features.early and core.spare.early:
            speech.answers -= 1
            self._anticipation.start(span)

    def _give_back(self, speech: Speech, detector: Detector) -> None:
        if (earned := int(self._voiced_ms(detector)) // ATTEMPT_AGAIN_MS) > speech.given_back:
            speech.given_back = earned
            speech.answers = min(ATTEMPTS, speech.answers + 1)
            speech.guesses = min(ATTEMPTS, speech.guesses + 1)

    def _stop(self, span: Span) -> None:
        """The turn is over: it becomes an item, and is answered unless it was none."""
        core, detector, speech = self._core, self._detector, self._speech
        if speech is None or detector is None:
            return
        policy = core.turn_detection or {}
        if speech.scoring is not None:
            core.counts["turn_scores_late"] += 1
        self._unscore(speech)
        was_speech = self._is_speech(detector) and not self._transcripts.blank(span)
        self._say_stopped(speech.item_id, detector.known)
        self._speech, core.user_speaks = None, False
        item = self._commit(speech.item_id, span)
        core.counts["turns"] += 1
        if not was_speech:
            core.counts["turns_without_speech"] += 1
            self._responses.resume()
        elif policy.get("create_response") and core.converses:
            self._responses.answer()
        self._responses.stay_cut()
        self._anticipation.drop("stale")
        if not was_speech and not self._is_speech(detector):
            self._transcripts.nothing_said(item)
            self._memory.delete(item)
        self._memory.shed()

    def _await_silence(self, detector: Detector) -> None:
        """How long semantic_vad waits is not known before there is a silence to be scored."""
        if (self._core.turn_detection or {}).get("type") == "semantic_vad":
            detector.silence_ms = math.inf

    def _is_speech(self, detector: Detector) -> bool:
        return self._voiced_ms(detector) >= self._core.features.min_speech_ms

    @staticmethod
    def _voiced_ms(detector: Detector) -> float:
        return detector.voiced * WINDOW * 1000 / IN_RATE

    def _end(self, detector: Detector) -> int:
        """The same at maybe-over and at the end, so that what was begun early fits."""
        return min(detector.last_voiced + TAIL, self.received)

    def _say_stopped(self, item_id: str, at: int) -> None:
        ms = at * 1000 // IN_RATE
        self._core.emit("input_audio_buffer.speech_stopped", audio_end_ms=ms, item_id=item_id)

    def _unscore(self, speech: Speech) -> None:
        if speech.scoring is not None:
            self._core.do(Abort(speech.scoring))
            speech.scoring = None

    def _commit(self, item_id: str, span: Span) -> Item:
        self.buffer_start = span[1]
        self._announced = None
        return self._memory.keep(item_id, span)

    # ---- what the client does to the buffer

    def commit(self) -> None:
        """input_audio_buffer.commit: what is there becomes an item, under the id it was announced with."""
        speech = self._speech
        start = speech.start if speech else self.buffer_start
        ms = (self.received - start) * 1000 / IN_RATE
        if ms < SHORTEST_COMMIT_MS:
            raise Refused(
                "Error committing input audio buffer: buffer too small. Expected at least "
                f"{SHORTEST_COMMIT_MS}ms of audio, but buffer only has {ms:.2f}ms of audio.",
                "input_audio_buffer_commit_empty",
            )
        self._anticipation.drop("stale")
        self._responses.stay_cut()
        self._responses.stir()
        item_id = self.announced or self._core.new_id("item")
        self._end_speech()
        self._commit(item_id, (start, self.received))
        self._memory.shed()

    def clear(self) -> None:
        """input_audio_buffer.clear"""
        self._responses.stay_cut()
        self._anticipation.drop("stale")
        self._end_speech()
        self._transcripts.end_turn()
        self._announced = None
        self.buffer_start = self.received
        self._core.do(ForgetAudio(self.received))
        self._core.emit("input_audio_buffer.cleared")

    def apply_turn_detection(self) -> None:
        """On to on keeps the turn that runs; on to off keeps its samples for a commit; off to on starts empty."""
        policy, detector = self._core.turn_detection, self._detector
        if policy is None:
            if self._speech:
                self.buffer_start = self._speech.start
                self._announced = self._speech.item_id
            self._responses.stay_cut()
            self._anticipation.drop("stale")
            self._end_speech()
            self._transcripts.pause()
            self._detector = None
            return
        if detector is None:
            detector = self._detector = Detector(0.5, 0, scored=self.received, received=self.received)
        detector.threshold = policy.get("threshold", 0.5)
        if policy["type"] == "server_vad":
            detector.silence_ms = policy["silence_duration_ms"]
        elif detector.maybe:
            detector.silence_ms = patience_ms(None, policy["eagerness"], 0)
        else:
            self._await_silence(detector)

    def close(self) -> None:
        if self._speech:
            self._unscore(self._speech)
        self._speech = None
        self._detector = None

    def _end_speech(self) -> None:
        """The detector is told that nobody speaks; a turn that was announced is said to have stopped."""
        speech, self._speech = self._speech, None
        self._core.user_speaks = False
        if self._detector:
            self._detector.reset()
            self._detector.scored = max(self._detector.scored, self.received)  # scores on their way are of the past
        if speech:
            self._unscore(speech)
            self._say_stopped(speech.item_id, self.received)

    # ---- bounds

    def _padding(self) -> int:
        policy = self._core.turn_detection or {}
        return int(policy.get("prefix_padding_ms", PREFIX_PADDING_MS)) * IN_RATE // 1000

    def _forget_silence(self, detector: Detector) -> None:
        """While nobody speaks only the pre-roll is kept: an open microphone costs nothing."""
        first = detector.onset if detector.beginning else detector.scored
        floor = first - self._padding() - WINDOW
        if floor - self.buffer_start > IN_RATE:
            self.buffer_start = floor
            self._core.do(ForgetAudio(floor))

    def _bound_buffer(self) -> None:
        """A client that commits by itself and never does: say so, and keep the newer half."""
        if self.received - self.buffer_start > LONGEST_BUFFER_S * IN_RATE:
            self.buffer_start = self.received - LONGEST_BUFFER_S * IN_RATE // 2
            self._core.do(ForgetAudio(self.buffer_start))
            message = (
                f"The input audio buffer holds more than {LONGEST_BUFFER_S} s that were not committed; "
                "its older half was dropped."
            )
            self._core.do(Send(error_event(message, "input_audio_buffer_overflow")))
