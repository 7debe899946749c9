"""The vocabulary: what can happen to a conversation (In), and what it can ask for (Out).

Samples of input are counted at 16 kHz from the first one of the session; samples of output at 24 kHz from the first one
of an answer. Times are seconds on whatever monotonic clock the shell passes as ``now``. A ``gen`` names one piece of
work of the graph: an answer, a preparation, a transcript or a score; ``Abort`` takes any of them.

GA dicts are the only wire vocabulary. The edge adds ``event_id``, base64, the codec and the beta names: where base64
will be, an event carries the opaque ``pcm`` of ``AudioMade``, or ``InputAudio`` for samples of the user.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from antiphon.pipelines.outputs import Usage
from antiphon.session.request import Recognition, Request, Span

IN_RATE, OUT_RATE = 16_000, 24_000
WINDOW = 512
"""Input samples in one window that ``SpeechScored`` scores."""

Json = dict[str, Any]


# ---- In: what can happen


@dataclass(frozen=True, slots=True)
class Command:
    """A client event in GA names: any JSON object. The machine checks it and answers a bad one with an ``error`` event.

    Two things are the edge's: ``input_audio_buffer.append`` never comes here (it is ``AudioReceived``), and base64 of
    ``input_audio`` parts and data URIs of images have been tried before and are passed on as they came.
    """

    event: Json


@dataclass(frozen=True, slots=True)
class AudioReceived:
    """``total`` input samples since the session began. Comes before the scores of those samples."""

    total: int


@dataclass(frozen=True, slots=True)
class SpeechScored:
    """How sure the ears are that [end - 512, end) holds speech. Late or repeated scores are allowed.

    ``loud``: the last sample of the window that is loud against recent speech (-34 dB), -1 when there is none, None
    when nobody measured. It dates the beginning of silence finer than a window.
    """

    end: int
    p: float
    loud: int | None = None


@dataclass(frozen=True, slots=True)
class TurnScored:
    """The answer to ``ScoreTurn``: how complete the utterance sounds, 0..1; None when the model failed."""

    gen: str
    p: float | None


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The answer to ``Transcribe`` of kind guess or final.

    ``text`` None: it failed, and ``error`` says why in words fit for a client.
    """

    gen: str
    text: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The answer to ``Transcribe`` of kind partial: the whole reading of its span. None: it failed or was skipped."""

    gen: str
    text: str | None


@dataclass(frozen=True, slots=True)
class TextMade:
    """``tokens`` made since the last one: what a cancelled answer's usage is counted from."""

    gen: str
    text: str
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class AudioMade:
    """``pcm`` is opaque. ``marks``: at ``sample`` of the answer's audio the voice has said ``text[:offset]`` of the
    answer's text; both rise. ``exact`` False: proportional, and so rounded down to a word."""

    gen: str
    pcm: Any
    samples: int
    marks: tuple[tuple[int, int], ...] = ()
    exact: bool = True


@dataclass(frozen=True, slots=True)
class CallMade:
    """A piece of a call's JSON arguments; ``name`` and ``call_id`` are whole from the first piece on."""

    gen: str
    call_id: str
    name: str
    arguments: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """All terminals of a generation (or a preparation) have ended. After it nothing of that ``gen`` may come.

    ``error`` is fit for a client and goes with ``failed``; ``code``: ``model_error``, ``server_busy`` and the like.
    """

    gen: str
    reason: Literal["stop", "length", "failed"] = "stop"
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    code: str = "model_error"


@dataclass(frozen=True, slots=True)
class Played:
    """WebRTC: so many samples of that item have left the loudspeaker queue in all. Tell it before ``AudioReceived``."""

    item_id: str
    samples: int


@dataclass(frozen=True, slots=True)
class Spare:
    """What the box has time for besides what it owes. Under load partials step back first, then early answers."""

    partials: bool = True
    early: bool = True


@dataclass(frozen=True, slots=True)
class Tick:
    """``Session.deadline`` has come."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The client is gone. Everything still running is aborted; no event is answered after it."""


In = (
    Command
    | AudioReceived
    | SpeechScored
    | TurnScored
    | Transcribed
    | PartialTranscript
    | TextMade
    | AudioMade
    | CallMade
    | Ended
    | Played
    | Spare
    | Tick
    | Closed
)


# ---- Out: what it can ask for. The shell runs them in order and never reorders.


@dataclass(frozen=True, slots=True)
class InputAudio:
    """Stands in an event where base64 of the user's own samples will be (``audio`` of a retrieved item's part)."""

    span: Span


@dataclass(frozen=True, slots=True)
class Send:
    """A GA event without ``event_id``."""

    event: Json


@dataclass(frozen=True, slots=True)
class Play:
    """WebRTC: put this behind what waits for the loudspeaker. (Over WebSocket it is a ``Send`` of a delta.)"""

    response_id: str
    item_id: str
    pcm: Any
    samples: int


@dataclass(frozen=True, slots=True)
class ClearPlayback:
    """WebRTC: throw away what waits for the loudspeaker, with a short fade."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Begin an answer. ``early``: held back until ``Confirm`` or ``Abort``; ``aside``: out of the conversation."""

    gen: str
    request: Request
    early: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Confirm:
    """An early answer is now awaited: lift its first-clause limit, raise its class. It may have ended already."""

    gen: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Warm what the next answer will need: the instructions, tools and context as they are now. Ends with ``Ended``."""

    gen: str
    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop that generation, preparation, transcript or score. Nothing of it is awaited any more."""

    gen: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the listener is: he runs out of audio in ``due_in_ms``; he has heard ``heard_ms`` of this answer."""

    gen: str
    due_in_ms: float
    heard_ms: float
    window_ms: float


@dataclass(frozen=True, slots=True)
class Transcribe:
    """Read these samples. partial: while the user still speaks, dropped first under load (``PartialTranscript``);
    guess: the turn may be over; final: it is (``Transcribed``)."""

    gen: str
    span: Span
    recognition: Recognition = field(default_factory=Recognition)
    kind: Literal["partial", "guess", "final"] = "final"


@dataclass(frozen=True, slots=True)
class ScoreTurn:
    """How complete does this utterance sound? ``span`` ends where the silence began to be noticed."""

    gen: str
    span: Span


@dataclass(frozen=True, slots=True)
class KeepAudio:
    """An item now owns these input samples; they stay until ``DropAudio`` with the same span."""

    span: Span


@dataclass(frozen=True, slots=True)
class DropAudio:
    span: Span


@dataclass(frozen=True, slots=True)
class ForgetAudio:
    """Unowned input samples before this one will not be asked for again."""

    before: int


@dataclass(frozen=True, slots=True)
class ContextTrimmed:
    """For the log and the metrics: the oldest turns left the model's context, which held about ``tokens`` before."""

    items: int
    tokens: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """Send what is queued, then close with this WebSocket code. The machine is closed already."""

    code: int
    reason: str


Out = (
    Send
    | Play
    | ClearPlayback
    | Generate
    | Confirm
    | Prepare
    | Abort
    | Progress
    | Transcribe
    | ScoreTurn
    | KeepAudio
    | DropAudio
    | ForgetAudio
    | ContextTrimmed
    | HangUp
)
