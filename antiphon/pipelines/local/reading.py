"""One clip being read, step by step. (Several at once: ``readings``.)

Steps: find the speech, encode a window, decode windows, read again what cannot stand. The rule for short windows: the
speech and two seconds of silence, a whole number of seconds; read with timestamps; drop what is dated behind the end of
the sound; a reading that ran into its limit, repeats itself or is very unsure is tried again in the full window that
Whisper was trained on, greedily, then with rising temperature (openai/whisper, transcribe.py); nothing is read where the
voice detector hears nobody. Its measure is ``benchmarks/word_error``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.ears.silero import WINDOW, Silero, Voice
from antiphon.pipelines.local import whisper_segments as rule
from antiphon.pipelines.local.whisper import FRAMES_PER_S, FULL_S, Decoded, Encoded, Pending, Recogniser
from antiphon.pipelines.local.whisper_segments import Verdict
from antiphon.pipelines.local.whisper_words import snapped, word_times
from antiphon.pipelines.local.windows import Span, plan, speech, voiced
from antiphon.pipelines.log_mel import RATE
from antiphon.pipelines.outputs import Segment, TranscriptResult, Word
from antiphon.pipelines.requests import Transcription

RIGHT_S: Final = 2.0
"""Silence behind the speech; with one second more sentences are repeated."""
SCAN_S: Final = 20.0
"""Audio looked through for speech in one step."""
GROUP, DECODE_S = 4, 13.0
"""Windows decoded in one step, and how much speech they may hold: twelve seconds take half a second."""
TEMPERATURES: Final = (0.0, 0.4, 0.8)
"""Of the second, third and fourth try, in the full window."""
TOKENS, TOKENS_PER_S, TOKENS_PER_S_DENSE = 14, 8, 20
LATIN: Final = frozenset(
    ["af", "ca", "da", "de", "en", "es", "fi", "fr", "id", "it", "ms", "nl", "no", "pt", "ro", "sv", "sw", "tl", "tr"]
)
TIMES_LIKELIER, SURE_SHORT, SHORT_S = 5.0, 0.85, 2.0
"""So much likelier than the language spoken before a detected one has to be; in a short utterance it has to be sure."""


AS_IS: Final = Transcription()


class Phase(Enum):
    SCAN = auto()
    ENCODE = auto()
    DECODE = auto()
    ALIGN = auto()
    WAIT = auto()
    DONE = auto()


@dataclass
class _Piece:
    span: Span
    encoded: Encoded | None = None
    language: str = ""
    decoded: Decoded | None = None
    tries: int = 0
    again: float | None = None
    pending: Pending | None = None
    settled: bool = False

    @property
    def open(self) -> bool:
        """It is being read again, or waits for that."""
        return self.pending is not None or self.again is not None


class Reading:
    """``pcm``: float32 16 kHz. ``expected``: the language when it cannot be told. ``vad`` None: everything is read."""

    def __init__(
        self,
        model: Recogniser,
        vad: Silero | None,
        pcm: NDArray[np.float32],
        options: Transcription = AS_IS,
        expected: str = "en",
        *,
        right_s: float = RIGHT_S,
        full: bool = False,
    ) -> None:
        self.model, self._vad = model, vad
        self._pcm, self._options, self._expected = pcm, options, expected
        self._right_s, self._full = right_s, full
        self._voice, self._scores, self._scanned = Voice(), list[float](), 0
        self._pieces: list[_Piece] | None = None
        if options.language:
            model.vocabulary.start(options.language)  # Refused here, not in a step
        self._text, self._told = "", 0
        self._segments: list[Segment] = []
        self._words: list[Word] = []
        self.waited = False
        self.retries = 0
        if vad is None:
            self._pieces = [_Piece(s) for s in plan(pcm, [Span(0, len(pcm))] if len(pcm) else [])]
        elif not len(pcm):
            self._pieces = []

    # ---- what is next
    @property
    def phase(self) -> Phase:
        if self._pieces is None:
            return Phase.SCAN
        group = self._group()
        if not group:
            return Phase.DONE
        if any(p.encoded is None for p in group):
            return Phase.ENCODE
        if any(p.decoded is None for p in group):
            return Phase.DECODE
        return Phase.WAIT if any(p.open for p in group) else Phase.ALIGN

    def _group(self) -> list[_Piece]:
        """The windows at work: of those not settled, the next few that one step can decode together."""
        group: list[_Piece] = []
        room = DECODE_S
        for piece in self._pieces or ():
            if piece.settled:
                continue
            room -= piece.span.seconds
            if group and (room < 0 or len(group) == GROUP):
                break
            group.append(piece)
        return group

    @property
    def language(self) -> str:
        """Of the last window read, "" before the first."""
        return next((p.language for p in reversed(self._pieces or ()) if p.language), self._options.language)

    def take_text(self) -> str:
        """What has been read since the last call; all calls together give the result's text."""
        new = self._text[self._told :]
        if self._told == 0:
            new = new.lstrip()
        self._told = len(self._text)
        return new

    def result(self) -> TranscriptResult:
        return TranscriptResult(
            text=self._text.strip(),
            language=self.language,
            duration=len(self._pcm) / RATE,
            segments=tuple(self._segments),
            words=tuple(self._words),
        )

    @property
    def stalled(self) -> bool:
        """It waits for a full window, and there is nothing to do before that is read."""
        group = [p for p in self._group() if p.open]
        done = any(p.pending is not None and p.pending.done() for p in group)
        return bool(group) and self.phase is Phase.WAIT and not done and not (self.model.free and self._waits(group))

    def running(self) -> list[Pending]:
        """What CTranslate2 still computes for this clip."""
        return [p.pending for p in self._pieces or () if p.pending is not None and not p.pending.done()]

    # ---- steps
    def scan(self) -> float:
        """Look for speech in the next seconds; returns how many."""
        assert self._vad is not None
        some = self._pcm[self._scanned : self._scanned + int(SCAN_S * RATE) // WINDOW * WINDOW]
        self._scores += self._vad.scan(some, self._voice).tolist()
        self._scanned += len(some)
        if self._scanned >= len(self._pcm):
            self._pieces = [_Piece(s) for s in plan(self._pcm, speech(self._scores, len(self._pcm)))]
        return len(some) / RATE

    def window_s(self) -> float:
        """Length of the next window to encode: whole seconds, so that windows of several clips can be decoded together."""
        piece = next(p for p in self._group() if p.encoded is None)
        return FULL_S if self._full else min(FULL_S, math.ceil(piece.span.seconds + self._right_s))

    def encode(self) -> None:
        window = self.window_s()
        piece = next(p for p in self._group() if p.encoded is None)
        piece.encoded = self.model.encode(self._sound(piece), window)
        piece.language = self._options.language or self._detected(piece)

    def to_decode(self) -> list[_Piece]:
        return [p for p in self._group() if p.encoded is not None and p.decoded is None]

    def prompt(self, piece: _Piece) -> list[int]:
        vocabulary, options = self.model.vocabulary, self._options
        bias = vocabulary.bias(options.prompt, options.keywords, piece.language)
        return [*bias, *vocabulary.start(piece.language, translate=options.translate)]

    def cap(self, piece: _Piece) -> int:
        """The most tokens that so much speech can be."""
        return min(224, TOKENS + int(self._tokens_per_s(piece) * piece.span.seconds))

    def shape(self, piece: _Piece) -> tuple[int, int, float]:
        """Windows of one shape can be decoded together."""
        assert piece.encoded is not None
        return len(piece.encoded), len(self.prompt(piece)), self._options.temperature

    def decoded(self, piece: _Piece, found: Decoded) -> None:
        """A window has been read: let it stand, or try again in the full window."""
        verdict = self._verdict(piece, found)
        if piece.decoded is None or verdict is not Verdict.AGAIN or _better(found, piece.decoded):
            piece.decoded = found
        if verdict is Verdict.AGAIN and piece.tries < len(TEMPERATURES):
            piece.again = max(TEMPERATURES[piece.tries], self._options.temperature)
            piece.tries += 1
            self.retries += 1
            self._read_in_full()
        elif not self._options.words:
            self.settle(GROUP)

    def collect(self) -> None:
        """Fetch full windows that are ready, and begin those that wait for one."""
        for piece in self._group():
            if piece.pending is not None and piece.pending.done():
                found, piece.pending = piece.pending.result(), None
                self.decoded(piece, found)
        self._read_in_full()

    def settle(self, most: int = 1) -> None:
        """Write down windows whose reading stands, in order."""
        for piece in self._group()[:most]:
            if piece.decoded is None or piece.open:
                return
            piece.settled = True
            found = piece.decoded
            if self._verdict(piece, found) is not Verdict.NOTHING:
                self._write(piece, found)
            piece.encoded = None

    # ---- inside
    def _tokens_per_s(self, piece: _Piece) -> int:
        return TOKENS_PER_S if piece.language in LATIN or self._options.translate else TOKENS_PER_S_DENSE

    @staticmethod
    def _waits(group: Sequence[_Piece]) -> bool:
        return any(p.again is not None and p.pending is None for p in group)

    def _read_in_full(self) -> None:
        """Begin a full window, if one waits and no other is being read: two would leave no worker for the short ones."""
        for piece in self._group():
            if piece.again is not None and piece.pending is None and self.model.free:
                sound, prompt, cap = self._sound(piece), self.prompt(piece), self.cap(piece)
                piece.pending = self.model.decode_full(sound, prompt, cap, temperature=piece.again)
                piece.again = None

    def _sound(self, piece: _Piece) -> NDArray[np.float32]:
        return self._pcm[piece.span.start : piece.span.end]

    def _detected(self, piece: _Piece) -> str:
        assert piece.encoded is not None
        likely = self.model.detect(piece.encoded)
        language = max(likely, key=likely.__getitem__)
        before = self.language or self._expected
        if before and likely[language] < TIMES_LIKELIER * likely.get(before, 0.0):
            return before
        if before and piece.span.seconds < SHORT_S and likely[language] < SURE_SHORT:
            return before
        return language

    def _verdict(self, piece: _Piece, found: Decoded) -> Verdict:
        first_time = self.model.vocabulary.first_time
        parts = rule.timed(found.tokens, first_time, piece.span.seconds)
        kept = sum(len(part.tokens) for part in parts)
        twice = rule.doubled(found.text) or rule.crammed(parts, first_time, self._tokens_per_s(piece))
        return rule.judge(
            avg_logprob=found.avg_logprob,
            no_speech_prob=found.no_speech_prob,
            compression_ratio=found.compression_ratio,
            whole=(found.whole or kept < len(found.tokens)) and not (piece.tries == 0 and twice),
        )

    def _write(self, piece: _Piece, found: Decoded) -> None:
        vocabulary = self.model.vocabulary
        offset = piece.span.start / RATE
        parts = rule.timed(found.tokens, vocabulary.first_time, piece.span.seconds)
        for part in parts:
            text = vocabulary.text(part.tokens)
            self._text += text
            self._segments.append(
                Segment(
                    start=round(offset + part.start, 2),
                    end=round(offset + part.end, 2),
                    text=text.strip(),
                    tokens=part.tokens,
                    avg_logprob=found.avg_logprob,
                    no_speech_prob=found.no_speech_prob,
                    compression_ratio=found.compression_ratio,
                    temperature=found.temperature,
                    seek=int(offset * 100),
                )
            )
        if self._options.words and parts:
            assert piece.encoded is not None
            tokens = [t for part in parts for t in part.tokens if t < vocabulary.end]
            start = vocabulary.start(piece.language, translate=self._options.translate)
            frames = max(1, round(piece.span.seconds * FRAMES_PER_S))
            times = self.model.align(piece.encoded, start, tokens, frames)
            named = vocabulary.words(tokens, piece.language)
            self._words += snapped(word_times(named, times, offset, piece.span.seconds), voiced(self._scores))


def _better(a: Decoded, b: Decoded) -> bool:
    """Whether ``a`` is the more credible of two failed readings."""
    return (not rule.loops(a.compression_ratio), a.whole, a.avg_logprob) > (
        not rule.loops(b.compression_ratio),
        b.whole,
        b.avg_logprob,
    )
