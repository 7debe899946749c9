"""What the user said, as text: guesses while the turn may be over, finals, and partials while he still speaks.

A guess for exactly the samples that become the item is its transcript. Text that was told in a delta is never taken
back: only what two readings in a row agree on is told (``agreement``).
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.session.agreement import agreed, rest
from antiphon.session.config import recognition_of
from antiphon.session.conversation import Item
from antiphon.session.core import Core
from antiphon.session.events import IN_RATE, Abort, PartialTranscript, Transcribe, Transcribed
from antiphon.session.request import Recognition, Span

EVENT = "conversation.item.input_audio_transcription"
MOST_READ = 8
"""Items of one client that are read at once; the others wait, so that hundreds of commits do not fill the graph."""
LONGEST_PARTIAL_S = 28
"""Longer speech is not read again and again while it lasts: a Whisper window is 30 s."""


@dataclass
class _Reading:
    gen: str
    span: Span
    recognition: Recognition
    item: Item | None = None  # whose transcript it is
    tell: bool = False  # whether the client wants to see it
    told: str = ""  # what partials have told already
    last: bool = False  # if this fails too, it is not tried again
    answer: Transcribed | None = None


@dataclass
class _Partial:
    """Of the turn being spoken. ``told``: the text the client has; ``last``: the previous reading."""

    item_id: str
    asked_at: int
    told: str = ""
    last: str = ""
    gen: str | None = None


class Transcripts:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._readings: dict[str, _Reading] = {}
        self._waiting: list[_Reading] = []  # items, in the order of their coming
        self._guess: _Reading | None = None
        self._partial: _Partial | None = None

    # ---- the turn being spoken

    def begin_turn(self, item_id: str, start: int) -> None:
        self._stop_partial()
        self._partial = _Partial(item_id, start)

    def hear(self, span: Span) -> None:
        """The user has spoken this so far: perhaps it is time for another partial."""
        core, partial = self._core, self._partial
        if partial is None or partial.gen or not core.features.partials or not core.spare.partials:
            return
        if not core.config["audio"]["input"]["transcription"] or span[1] - span[0] > LONGEST_PARTIAL_S * IN_RATE:
            return
        if span[1] - partial.asked_at >= core.features.partial_every_s * IN_RATE:
            partial.asked_at = span[1]
            partial.gen = core.new_id("hear")
            core.counts["partials"] += 1
            core.do(Transcribe(partial.gen, span, recognition_of(core.config), "partial"))

    def read_partly(self, event: PartialTranscript) -> None:
        partial = self._partial
        if partial is None or partial.gen != event.gen:
            return
        partial.gen = None
        if event.text is None:
            return
        delta = agreed(partial.last, event.text, partial.told)
        partial.last = event.text
        if delta:
            partial.told += delta
            self._core.emit(f"{EVENT}.delta", item_id=partial.item_id, content_index=0, delta=delta)

    def guess(self, span: Span) -> None:
        """The turn may be over: read it now. What is known then needs no reading later."""
        self._stop_partial()
        recognition = recognition_of(self._core.config)
        if self._guess and (self._guess.span, self._guess.recognition) == (span, recognition):
            return
        self.drop_guess()
        self._guess = _Reading(self._core.new_id("hear"), span, recognition)
        self._readings[self._guess.gen] = self._guess
        self._core.counts["transcript_guesses"] += 1
        self._core.do(Transcribe(self._guess.gen, span, recognition, "guess"))

    def drop_guess(self) -> None:
        """Nothing made on a guess outlives it."""
        guess, self._guess = self._guess, None
        if guess is None:
            return
        self._core.counts["transcript_guesses_wasted"] += 1
        if self._readings.pop(guess.gen, None):
            self._core.do(Abort(guess.gen))

    def blank(self, span: Span) -> bool:
        """True when it is known already that nothing was said in these samples."""
        answer = self._guess.answer if self._guess and self._guess.span == span else None
        return answer is not None and answer.text is not None and not answer.text.strip()

    def pause(self) -> None:
        """The turn goes on without a detector: nothing more is read of it until it is an item."""
        self._stop_partial()
        self.drop_guess()

    def end_turn(self) -> None:
        """The speech became no item."""
        self._stop_partial()
        self._partial = None
        self.drop_guess()

    # ---- items

    def want(self, span: Span, item: Item) -> None:
        """The samples are an item now. A guess for them is its transcript; else one is begun if the client wants it."""
        core = self._core
        self._stop_partial()
        partial, self._partial = self._partial, None
        told = partial.told if partial and partial.item_id == item.id else ""
        tell = bool(core.config["audio"]["input"]["transcription"]) or not core.converses
        guess, recognition = self._guess, recognition_of(core.config)
        if guess and (guess.span, guess.recognition) == (span, recognition):
            self._guess = None
            guess.item, guess.tell, guess.told = item, tell, told
            if guess.answer is not None:
                self._tell(guess, guess.answer)
            return
        self.drop_guess()
        if tell:
            self._read(span, item, tell, told)

    def understand(self, item: Item) -> None:
        """Read an item for the model's sake, unseen by the client."""
        if item.span and not any(reading.item is item for reading in (*self._readings.values(), *self._waiting)):
            self._read(item.span, item, tell=False).last = True

    def transcribed(self, event: Transcribed) -> None:
        reading = self._readings.pop(event.gen, None)
        if reading is None:
            return
        if reading.item is None:
            reading.answer = event  # a guess: nobody waits for it yet
        else:
            self._tell(reading, event)
        self._read_on()

    def nothing_said(self, item: Item) -> None:
        """It was no speech, so its transcript is known. openai-agents awaits one for every commit before its input can end."""
        for reading in [r for r in (*self._readings.values(), *self._waiting) if r.item is item]:
            if reading in self._waiting:
                self._waiting.remove(reading)
            else:
                self._core.do(Abort(reading.gen))
            self._tell(reading, Transcribed(reading.gen, ""))
        self._read_on()

    def forget(self, item: Item) -> None:
        """The item is gone: its transcript is awaited no longer."""
        self._waiting = [reading for reading in self._waiting if reading.item is not item]
        for reading in [r for r in self._readings.values() if r.item is item]:
            del self._readings[reading.gen]
            self._core.do(Abort(reading.gen))
        self._read_on()

    def close(self) -> None:
        self._waiting.clear()
        self.end_turn()
        for gen in self._readings:
            self._core.do(Abort(gen))
        self._readings.clear()

    @property
    def running(self) -> set[str]:
        partial = {self._partial.gen} if self._partial and self._partial.gen else set()
        return set(self._readings) | partial

    # ---- inside

    def _read(self, span: Span, item: Item, tell: bool, told: str = "") -> _Reading:
        reading = _Reading(self._core.new_id("hear"), span, recognition_of(self._core.config), item, tell, told)
        self._waiting.append(reading)
        self._read_on()
        return reading

    def _read_on(self) -> None:
        while self._waiting and sum(reading.item is not None for reading in self._readings.values()) < MOST_READ:
            reading = self._waiting.pop(0)
            self._readings[reading.gen] = reading
            self._core.do(Transcribe(reading.gen, reading.span, reading.recognition, "final"))

    def _tell(self, reading: _Reading, answer: Transcribed) -> None:
        core, item = self._core, reading.item
        self._readings.pop(reading.gen, None)
        if item is None:
            return
        item.understood = answer.text
        if not reading.tell:
            if reading.last and answer.text is None:
                item.understood = ""  # what cannot be read even now is not asked for again
            return
        if answer.text is None:
            error = {
                "type": "server_error",
                "code": "transcription_failed",
                "message": answer.error or "The transcription failed.",
            }
            core.counts["transcripts_failed"] += 1
            core.emit(f"{EVENT}.failed", item_id=item.id, content_index=0, error=error)
            return
        item.wire["content"][0]["transcript"] = answer.text
        untold = rest(reading.told, answer.text)
        if untold or not reading.told:
            core.emit(f"{EVENT}.delta", item_id=item.id, content_index=0, delta=untold)
        seconds = round((reading.span[1] - reading.span[0]) / IN_RATE, 3)
        core.emit(
            f"{EVENT}.completed",
            item_id=item.id,
            content_index=0,
            transcript=answer.text,
            usage={"type": "duration", "seconds": seconds},
        )

    def _stop_partial(self) -> None:
        if self._partial and self._partial.gen:
            self._core.do(Abort(self._partial.gen))
            self._partial.gen = None
