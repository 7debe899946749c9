"""What is made before it is certain that it is needed: early answers, and preparations.

An early answer is a generation, its request, and what the graph has made so far; nothing else. Until it is confirmed
there is no id, no event, no item and no usage, so dropping it is saying nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.session.context import Context
from antiphon.session.core import Core
from antiphon.session.errors import ContextOverflow
from antiphon.session.events import Abort, AudioMade, CallMade, Ended, Generate, Prepare, TextMade
from antiphon.session.params import ResponseParams
from antiphon.session.request import Heard, Message, Request, Span

Made = TextMade | AudioMade | CallMade | Ended


@dataclass
class Early:
    gen: str
    request: Request
    made: list[Made] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return bool(self.made) and isinstance(self.made[-1], Ended)


class Anticipation:
    """At most one early answer at a time, and it is the turn that counts how many it may have."""

    def __init__(self, core: Core, context: Context) -> None:
        self._core = core
        self._context = context
        self._early: Early | None = None
        self._preparing: str | None = None
        self._prepared: Request | None = None

    def start(self, span: Span) -> None:
        """The turn may be over with this speech: begin its answer, held."""
        core = self._core
        if self._early is not None:
            return
        try:
            request = self._context.request(ResponseParams(), (Message("user", (Heard(span),)),))
        except ContextOverflow:
            return  # the turn itself will say so
        self.stop_preparing()
        self._early = Early(core.new_id("gen"), request)
        core.counts["early_started"] += 1
        core.do(Generate(self._early.gen, request, early=True))

    def take(self, request: Request) -> Early | None:
        """The early answer, if it answers exactly this."""
        early = self._early
        if early is None or early.request != request:
            return None
        self._early = None
        self._core.counts["early_won"] += 1
        return early

    def drop(self, why: str) -> None:
        """``why``: resumed (the user went on), stale (it no longer answers what is to be answered)."""
        if self._early is not None:
            self._core.counts[f"early_{why}"] += 1
            if not self._early.done:
                self._core.do(Abort(self._early.gen))
            self._early = None

    def made(self, event: Made) -> bool:
        """True when it was of the early answer, or of a preparation: nobody else is to see it."""
        if event.gen == self._preparing:
            if isinstance(event, Ended):
                self._preparing = None
            return True
        if self._early is None or event.gen != self._early.gen:
            return False
        if isinstance(event, Ended) and event.reason == "failed":
            self._core.counts["early_failed"] += 1
            self._early = None  # unseen: confirmation asks again
        elif not self._early.done:
            self._early.made.append(event)
        return True

    def prepare(self) -> None:
        """Have what is known already of the next answer read now, once for each state of it."""
        core = self._core
        if not core.features.prepare or not core.converses or self._early is not None:
            return
        try:
            request = self._context.request(ResponseParams(), ahead=True)
        except ContextOverflow:
            return
        if request == self._prepared:
            return
        self.stop_preparing()
        self._prepared, self._preparing = request, core.new_id("gen")
        core.counts["prepared"] += 1
        core.do(Prepare(self._preparing, request))

    def stop_preparing(self) -> None:
        """Before an answer of the same conversation: what was read by then stays in the cache."""
        if self._preparing is not None:
            self._core.do(Abort(self._preparing))
            self._preparing = None

    @property
    def running(self) -> set[str]:
        """The generations that are awaited here."""
        early = {self._early.gen} if self._early and not self._early.done else set()
        return early | ({self._preparing} if self._preparing else set())
