"""One conversation as a pure machine: ``handle(event, now) -> effects``, and the time it wants to be called again.

No sockets, clocks, threads, awaits or models in it. The parts and what each owns: ``hearing`` the input buffer and the
turns in it; ``responses`` what is being answered and heard; ``anticipation`` what is made before it is needed;
``transcripts`` what is being read; ``conversation`` the items; ``memory`` the samples they own; ``context`` what of
them the model gets; ``idle`` the user's silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from antiphon.session import commands
from antiphon.session.context import Context
from antiphon.session.conversation import Conversation, conversation_id
from antiphon.session.core import Core
from antiphon.session.early import Anticipation
from antiphon.session.errors import Refused, error_event, refusal
from antiphon.session.events import (
    AudioMade,
    AudioReceived,
    CallMade,
    Closed,
    Command,
    Ended,
    HangUp,
    In,
    Json,
    Out,
    PartialTranscript,
    Played,
    Send,
    Spare,
    SpeechScored,
    TextMade,
    Transcribed,
    TurnScored,
)
from antiphon.session.features import Features
from antiphon.session.hearing import Hearing
from antiphon.session.idle import Idle
from antiphon.session.memory import Memory
from antiphon.session.responses import Responses
from antiphon.session.transcripts import Transcripts


def no_limits() -> list[Json]:
    """What rate_limits.updated says on a server without any."""
    return [
        {"name": "requests", "limit": 10_000, "remaining": 10_000, "reset_seconds": 0},
        {"name": "tokens", "limit": 1_000_000, "remaining": 1_000_000, "reset_seconds": 0},
    ]


class Session:
    """One client's session.

    ``config`` comes from ``config.fresh`` (laid over, perhaps, with ``config.merged``). ``new_id(kind)`` draws ids that
    never repeat; kinds: item, resp, call, and gen, hear, score for work that the client never sees.
    """

    def __init__(
        self,
        config: Json,
        *,
        new_id: Callable[[str], str],
        features: Features | None = None,
        rate_limits: Callable[[], list[Json]] = no_limits,
    ) -> None:
        core = Core(config, features or Features(), new_id, rate_limits)
        self._core = core
        self.conversation = Conversation(conversation_id(config))
        self.context = Context(core, self.conversation)
        self.anticipation = Anticipation(core, self.context)
        self.transcripts = Transcripts(core)
        self.responses = Responses(core, self.conversation, self.context, self.anticipation)
        self.memory = Memory(core, self.conversation, self.context, self.transcripts)
        self.hearing = Hearing(core, self.memory, self.responses, self.anticipation, self.transcripts)
        self.idle = Idle(core, self.hearing, self.memory, self.responses)
        self.deadline: float | None = None
        """When ``handle(Tick(), now)`` is wanted; changes with every handling."""
        self.closed = False
        self._expires: float | None = None

    @property
    def config(self) -> Json:
        """The GA session object in force. Not to be changed by anyone else."""
        return self._core.config

    @property
    def counts(self) -> Counter[str]:
        """What happened, for metrics.

        turns_started, turns, turns_without_speech, interruptions, resumed, idle_timeouts; early_started and then one of
        early_won, early_resumed (the user went on), early_stale (it fitted no more), early_failed; prepared;
        transcript_guesses, transcript_guesses_wasted, partials, transcripts_failed; turn_scores, turn_scores_failed,
        turn_scores_late (semantic_vad fell back to a fixed silence); responses, responses_cancelled, responses_failed;
        context_items_trimmed; refused (client events).
        """
        return self._core.counts

    @property
    def running(self) -> set[str]:
        """Every ``gen`` that is still awaited."""
        return self.responses.running | self.anticipation.running | self.transcripts.running | self.hearing.running

    def begin(self, now: float) -> list[Out]:
        """The session's first effects."""
        core = self._core
        core.now, core.out = now, []
        if core.features.max_seconds != float("inf"):
            self._expires = now + core.features.max_seconds
        core.emit("session.created", session=core.config)
        self._settle()
        return core.out

    def handle(self, event: In, now: float) -> list[Out]:
        """What is to be done about it, in order. After ``Closed`` (or a ``HangUp``) nothing ever is."""
        core = self._core
        core.now, core.out = max(now, core.now), []
        if self.closed:
            return []
        match event:
            case Command():
                self._obey(event.event)
            case AudioReceived():
                self.hearing.on_audio(event.total)
            case SpeechScored():
                self.hearing.on_score(event)
            case TurnScored():
                self.hearing.on_turn_score(event)
            case Transcribed():
                self.transcripts.transcribed(event)
            case PartialTranscript():
                self.transcripts.read_partly(event)
            case TextMade() | AudioMade() | CallMade() | Ended():
                if not self.anticipation.made(event):
                    self.responses.made(event)
            case Played():
                self.responses.played(event)
            case Spare():
                core.spare = event
            case Closed():
                self._close()
        self._settle()
        return core.out

    def _obey(self, event: Any) -> None:
        """A refused command changes nothing; its error carries the id that the client gave it."""
        core = self._core
        event_id = event.get("event_id") if isinstance(event, dict) else None
        try:
            commands.obey(self, core, event)
        except Refused as refused:
            core.counts["refused"] += 1
            core.do(Send(refusal(refused, event_id if isinstance(event_id, str) else None)))

    def _settle(self) -> None:
        """Whatever happened: send what is due, end what is finished, and see when there is something to do again."""
        if self.closed:
            return
        core = self._core
        again = self.responses.pump()
        idle = self.idle.due()
        if idle is not None and idle <= core.now:
            self.idle.time_out()
            again, idle = self.responses.pump(), None
        if self._expires is not None and core.now >= self._expires:
            self._expire()
            return
        self.deadline = min((t for t in (again, idle, self._expires) if t is not None), default=None)

    def _expire(self) -> None:
        core = self._core
        minutes = core.features.max_seconds / 60
        text = f"Your session hit the maximum duration of {minutes:g} minutes."
        self.responses.close({"type": "invalid_request_error", "code": "session_expired", "message": text})
        core.do(Send(error_event(text, "session_expired")))
        self._close()
        core.do(HangUp(1001, text))

    def _close(self) -> None:
        self.anticipation.drop("stale")
        self.anticipation.stop_preparing()
        self.transcripts.close()
        self.responses.close()
        self.hearing.close()
        self.deadline, self.closed = None, True
