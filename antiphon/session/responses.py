"""The responses of a session: the one that answers in the conversation, those beside it, and what is still being heard."""

from __future__ import annotations

from dataclasses import replace

from antiphon.session.checks import a_string
from antiphon.session.context import Context
from antiphon.session.conversation import Conversation, Item
from antiphon.session.core import Core
from antiphon.session.early import Anticipation, Made
from antiphon.session.errors import ContextOverflow, Refused, refusal
from antiphon.session.events import (
    Abort,
    AudioMade,
    CallMade,
    Confirm,
    Ended,
    Generate,
    Json,
    Played,
    Send,
    TextMade,
)
from antiphon.session.listener import Listener
from antiphon.session.params import ResponseParams, checked_params
from antiphon.session.request import Request
from antiphon.session.response import Response
from antiphon.session.resumption import Resumption

MOST_ASIDE = 16
"""Responses of one client beside its conversation at once: the graph takes some dozens of requests in all, and a client
that asked for hundreds left no place for anybody else's answer."""
CLIENT_FAULTS = ("invalid_", "unsupported_", "missing_", "context_length_exceeded", "string_above_")
"""How codes of a failed generation begin that are about what the client asked for."""


class Responses:
    """Owns every response, and which one is active."""

    def __init__(self, core: Core, conversation: Conversation, context: Context, anticipation: Anticipation) -> None:
        self._core = core
        self._conversation = conversation
        self._context = context
        self._anticipation = anticipation
        self._running: dict[str, Response] = {}  # by generation
        self._listener = Listener(core, conversation)
        self._resumption = Resumption(core)
        self._next: tuple[ResponseParams, str | None] | None = None  # asked for a moment before its time
        self._owed = False  # a turn ended while a response ran that must not be interrupted
        self._stopped: str | None = None  # the response that the client ended by truncating it, until the next begins
        self._done_at: float | None = None  # the last default response ended, and nothing has happened since
        self.active: Response | None = None
        self.spoken = False

    # ---- beginnings

    def create(self, event: Json) -> None:
        """response.create"""
        core = self._core
        if not core.converses:
            raise Refused("A transcription session makes no responses.", "invalid_value", "type")
        output = core.config["audio"]["output"]
        params = checked_params(
            event.get("response"), core.features, output["format"], output["voice"] if self.spoken else None
        )
        if self.active is None or params.aside:
            self._ask(params)
        elif self.active.called and self._next is None:
            self._next = (params, event.get("event_id"))  # the calls are made: only the end has not been said yet
        else:
            raise _already_active(self.active.id)

    def answer(self) -> None:
        """A turn is over: it is answered now, or when the response that must not be interrupted has ended."""
        if self.active:
            self._owed = True
        else:
            self._owed = False
            self._ask(ResponseParams())

    def _ask(self, params: ResponseParams) -> None:
        """Release what was made early if it answers exactly this, else begin."""
        core = self._core
        try:
            request = self._context.request(params)
        except ContextOverflow as full:
            response = self._begin(core.new_id("gen"), _nothing(core, params), params)
            self._fail(response, full.code or "", str(full), "invalid_request_error")
            return
        if params.aside and sum(response.aside for response in self._running.values()) >= MOST_ASIDE:
            response = self._begin(core.new_id("gen"), request, params)
            text = f"At most {MOST_ASIDE} responses outside the conversation may be in progress at once."
            self._fail(response, "rate_limit_exceeded", text, "invalid_request_error")
            return
        early = None if params.aside else self._anticipation.take(request)
        if early:
            self._resumption.drop()
            core.do(Confirm(early.gen))
            self._begin(early.gen, request, params)
            for event in early.made:
                self.made(event)
            return
        if not params.aside:
            self._resumption.drop()
            self._anticipation.drop("stale")
            self._anticipation.stop_preparing()
        gen = core.new_id("gen")
        core.do(Generate(gen, request, aside=params.aside))
        self._begin(gen, request, params)

    def _begin(self, gen: str, request: Request, params: ResponseParams) -> Response:
        conversation = None if params.aside else self._conversation
        response = Response(self._core, self._core.new_id("resp"), gen, request, conversation, params)
        self._running[gen] = response
        if not params.aside:
            self._stopped = None
            self.active = response
            self._done_at = None
        self._core.counts["responses"] += 1
        response.begin()
        return response

    def resume(self) -> None:
        """What cut the answer was no speech: its rest is said."""
        parked = self._resumption.take()
        if parked is None or self.active is not None:
            return
        self._core.counts["resumed"] += 1
        self._begin(parked.gen, parked.request, ResponseParams()).shift = parked.shift
        for event in parked.made:
            self.made(event)

    def stay_cut(self) -> None:
        """What cut the answer was speech: nothing of it goes on."""
        self._resumption.drop()

    # ---- what the model makes

    def made(self, event: Made) -> None:
        if self._resumption.made(event):
            return
        response = self._running.get(event.gen)
        if response is None or response.ending:
            return  # late: its response has ended
        match event:
            case TextMade():
                response.text(event, self._heard_from(response))
            case AudioMade() if response.request.modality == "audio" and event.samples > 0:
                self.spoken = self.spoken or not response.aside
                response.audio(event, self._heard_from(response))
            case CallMade():
                response.call(event)
            case Ended(_, "failed", usage, message, code):
                response.usage = usage
                kind = "invalid_request_error" if code.startswith(CLIENT_FAULTS) else "server_error"
                self._fail(response, code, message, kind)
            case Ended():
                response.ended(event)

    def _heard_from(self, response: Response) -> float:
        return self._core.now if response.aside else max(self._listener.until, self._core.now)

    def _fail(self, response: Response, code: str, message: str, kind: str) -> None:
        text = message or "The server had an error while processing your request."
        self._core.counts["responses_failed"] += 1
        self._end(response, "failed", {"type": "failed", "error": {"type": kind, "code": code, "message": text}})

    # ---- endings

    def cancel(self, event: Json) -> None:
        """response.cancel"""
        wanted = event.get("response_id")
        if wanted is not None:
            a_string(wanted, "response_id")
            response = next((r for r in self._running.values() if r.id == wanted), None)
        else:
            response = self.active
        if response is None and self._stopped is not None and wanted in (None, self._stopped):
            self._stopped = None  # a client that stops playing says both, and the first has ended it
            return
        if response is None:
            raise Refused("Cancellation failed: no active response found", "response_cancel_not_active")
        self._cancel(response, "client_cancelled")

    def interrupt(self) -> bool:
        """The user speaks: end what answers him, mark what was heard of it; True if there was anything to cut."""
        self._owed = False
        cut = self._listener.to_cut(self._running.values())
        active = self.active
        if active is not None and self._next is not None:
            self._core.do(Send(refusal(_already_active(active.id), self._next[1])))
            self._next = None
        last = active or self._listener.last
        parked = last is not None and self._resumption.park(last)
        if active is not None:
            cut += [o.item for o in active.outputs if o.item.ledger and o.item.mark is None and o.item not in cut]
            self._cancel(active, "turn_detected", abort=not parked)
        self._listener.silence(cut, self._running.values())
        return active is not None or bool(cut)

    def clear_playback(self) -> None:
        """output_audio_buffer.clear (WebRTC): what waits for the loudspeaker is thrown away."""
        if self._core.features.transport != "webrtc":
            raise Refused("output_audio_buffer.clear is only supported on WebRTC and SIP.", "invalid_value", "type")
        running = self._running.values()
        self._listener.silence(self._listener.to_cut(running), running)

    def close(self, reason: Json | None = None) -> None:
        """End everything; with a ``reason`` the client is told, else he is gone."""
        self._owed, self._next = False, None
        for response in list(self._running.values()):
            if not response.ending:
                self._core.do(Abort(response.gen))
            if reason is not None:
                del self._running[response.gen]
                response.finish("failed", {"type": "failed", "error": reason})
        self._running.clear()
        self._listener.close()
        self._resumption.drop()
        self.active = None

    def _cancel(self, response: Response, reason: str, abort: bool = True) -> None:
        if abort and not response.ending:
            self._core.do(Abort(response.gen))
        self._core.counts["responses_cancelled"] += 1
        self._end(response, "cancelled", {"type": "cancelled", "reason": reason})

    def _end(self, response: Response, status: str, details: Json | None) -> None:
        del self._running[response.gen]
        response.finish(status, details)
        self._core.emit("rate_limits.updated", rate_limits=self._core.rate_limits())
        if response is self.active:
            self.active = None
            self._done_at = self._core.now
            if self._next is None and not self._owed and not self._core.user_speaks:
                self._anticipation.prepare()  # while it is being heard: after a cut all of the context is read anew

    # ---- what is heard

    def truncated(self, item: Item) -> None:
        """The client has stopped playing this item: what comes next is heard from now on.

        Over WebSocket the rest of it is neither made nor sent. OpenAI sends an answer faster than it is heard, so that next to
        nothing would come; paced, it would go on for as long as it is.
        """
        self._listener.stopped(item)
        if self._core.features.transport != "websocket":
            return
        for response in list(self._running.values()):
            if response.speech and response.speech.item is item:
                self._stopped = response.id
                self._cancel(response, "client_cancelled")

    def played(self, event: Played) -> None:
        """WebRTC: the loudspeaker has come so far."""
        self._listener.played(event)

    @property
    def audible(self) -> bool:
        """Something of the agent runs or is being heard: speech now is an interruption."""
        return self.active is not None or self._listener.hears(self._running.values())

    @property
    def quiet_since(self) -> float | None:
        """When the last answer had been heard to its end; None while one runs, or when there was none."""
        if self._done_at is None or self.audible:
            return None
        return max(self._done_at, self._listener.until)

    def stir(self) -> None:
        """Somebody spoke: the quiet since the last answer is over."""
        self._done_at = None

    @property
    def running(self) -> set[str]:
        """The generations that are awaited here."""
        return {gen for gen, response in self._running.items() if not response.ending} | self._resumption.running

    def pump(self) -> float | None:
        """Send what is due, end what is finished; the time to come back."""
        due: list[float] = []
        for response in list(self._running.values()):
            again = response.pump()
            due += [t for t in (again, response.progress()) if t is not None]
            self._listener.follow(response)
            if again is None and response.ending and response.gen in self._running:
                self._end(response, *response.ending)
        self._listener.let_go(self._running.values())
        if self._next is not None and self.active is None:
            (params, event_id), self._next = self._next, None
            try:
                self._ask(params)
            except Refused as refused:  # its input, which may name what is gone by now
                self._core.do(Send(refusal(refused, event_id)))
        if self._owed and self.active is None and not self._core.user_speaks:
            self.answer()
        return min(due, default=None)


def _already_active(response_id: str) -> Refused:
    return Refused(
        f"Conversation already has an active response in progress: {response_id}. Wait until the response "
        "is finished before creating a new one.",
        "conversation_already_has_active_response",
    )


def _nothing(core: Core, params: ResponseParams) -> Request:
    """Stands for a request that could not be made, so that the response can say why."""
    modality = params.modality or core.config["output_modalities"][0]
    return replace(
        Request("", (), "audio" if modality == "audio" else "text"),
        voice=params.voice or core.config["audio"]["output"]["voice"],
    )
