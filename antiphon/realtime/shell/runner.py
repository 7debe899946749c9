"""A conversation's shell without a transport: it owns the bytes and the clock, and runs what the machine asks for.

Every event goes through ``feed``, on the loop's thread; effects run in order and may feed further events, which wait
until the effects before them have run. Nothing here decides anything about the conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.stage import Listener
from antiphon.realtime.errors import ProtocolError, TooMany
from antiphon.realtime.load import Load
from antiphon.realtime.shell.asking import Asking
from antiphon.realtime.shell.hearing import Hearing
from antiphon.realtime.shell.neighbours import Door, Ear, Machine, Observer
from antiphon.realtime.shell.pump import Teller, failed, pump_answer, pump_transcript
from antiphon.realtime.shell.store import MAX_UNOWNED_S, AudioStore
from antiphon.realtime.state import Client, Generation
from antiphon.session import events as ev
from antiphon.session.events import Json

log = logging.getLogger("antiphon.realtime")

ECHO_TAIL_S = 0.3
"""How long after its playback the agent's voice may still come back: buffers, the way through the air, the room."""
LISTENERS: dict[str, Listener] = {"partial": "none", "guess": "early", "final": "confirmed"}
"""How urgent a transcript of each kind is."""


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Shell:
    """One conversation. ``spawn`` starts tasks in the session's own TaskGroup; ``count_response`` raises TooMany."""

    def __init__(
        self,
        *,
        id: str,
        machine: Machine,
        door: Door,
        graph: Client,
        open_ear: Callable[[Callable[[ev.SpeechScored], None]], Ear],
        spawn: Spawn,
        observer: Observer,
        count_response: Callable[[], None],
        load: Load,
    ) -> None:
        self.id = id
        self.machine = machine
        self.store = AudioStore(id)
        self._door = door
        self._graph = graph
        self._spawn = spawn
        self._observer = observer
        self._count_response = count_response
        self._loop = asyncio.get_running_loop()
        self._asking = Asking(id, self.store, graph.info)
        self._hearing = Hearing(machine.config["audio"]["input"]["format"])
        self._works: dict[str, tuple[Generation | None, asyncio.Task[None] | None]] = {}
        self._tellers: dict[str, Teller] = {}
        self._inbox: deque[ev.In] = deque()
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._broken = False
        self.closed = False
        self.responding = 0
        self._plays_until = 0.0
        self._ear = open_ear(self._scored)
        self._leave_load = load.join(self.feed)

    # ---- what happens
    def begin(self) -> None:
        """The first effects: ``session.created`` among them."""
        now = self._loop.time()
        effects = self.machine.begin(now)
        self._observer.saw(None, effects, now)
        self._running = True
        self._run_all(effects)
        self._running = False
        self._drain()

    def feed(self, event: ev.In) -> None:
        """Something happened. Safe to call from inside an effect."""
        if self._broken or (self.closed and not isinstance(event, ev.Closed)):
            return
        self._inbox.append(event)
        self._drain()

    async def hear(self, data: bytes) -> None:
        """Input audio in the session's format; a long piece is taken in slices, so that nobody else waits for it.

        Raises ``ProtocolError`` when the session holds more uncommitted audio than it may.
        """
        audio_format = self.machine.config["audio"]["input"]["format"]
        if audio_format != self._hearing.format:
            self._hearing = Hearing(audio_format)
        step = self._hearing.slice_bytes
        for start in range(0, len(data), step):
            if self.store.seconds > MAX_UNOWNED_S:
                message = f"The input audio buffer holds more than {MAX_UNOWNED_S:.0f} s; commit or clear it."
                raise ProtocolError(message, code="input_audio_buffer_full", param="audio")
            self.hear_samples(self._hearing.feed(data[start : start + step]))
            if len(data) > step:
                await asyncio.sleep(0)

    def hear_samples(self, samples: NDArray[np.float32]) -> None:
        """16 kHz float32 [n] of the user."""
        if len(samples) and not self.closed:
            self.store.push(samples)
            self.feed(ev.AudioReceived(self.store.total))  # before its scores: the machine may ask for these samples
            self._ear.push(samples)

    def close(self) -> None:
        """The client is gone, or has been sent away. Idempotent; everything that ran is asked to stop."""
        if self.closed:
            return
        self.closed = True
        self.feed(ev.Closed())
        self._observer.counted(self.machine.counts)
        if self._timer is not None:
            self._timer.cancel()
        for gen in list(self._works):
            self._abort(gen)
        self._leave_load()
        self._ear.close()
        self._graph.forget(self.id)
        self.store.clear()

    # ---- the loop
    def _drain(self) -> None:
        if self._running:
            return
        self._running = True
        try:
            while self._inbox:
                event = self._inbox.popleft()
                now = self._loop.time()
                effects = self.machine.handle(event, now)
                self._observer.saw(event, effects, now)
                self._run_all(effects)
        except Exception as error:  # noqa: BLE001 - boundary: one conversation's fault ends that conversation only
            self._break(error)
        finally:
            self._running = False
        self._set_timer()

    def _run_all(self, effects: list[ev.Out]) -> None:
        for effect in effects:
            self._run(effect)

    def _break(self, error: Exception) -> None:
        log.error("conversation broke", exc_info=error, extra={"session": self.id})
        self._broken = True
        self._observer.broke(error)
        self._inbox.clear()
        failure = {"type": "server_error", "code": None, "param": None, "event_id": None}
        message = "The server had an error while processing your request."
        self._door.send({"type": "error", "error": {**failure, "message": message}})
        self._door.hang_up(1011, "internal error")

    def _set_timer(self) -> None:
        at = None if self.closed or self._broken else self.machine.deadline
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._tick) if at is not None else None

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self.feed(ev.Tick())

    def _scored(self, score: ev.SpeechScored) -> None:
        self.feed(score)

    def _note(self, event: Json) -> None:
        """Somebody is being answered, or is about to hear something."""
        kind = event["type"]
        if kind == "response.output_audio.delta":
            self._sounds(len(event["delta"]))
            return
        if kind in ("response.done", "input_audio_buffer.speech_started"):
            self._observer.counted(self.machine.counts)
        cut = kind == "response.done" and event["response"]["status"] == "cancelled"
        spoken_over = kind == "input_audio_buffer.speech_started" and self._interruptible()
        if cut or spoken_over or kind == "conversation.item.truncated":
            self._hushed()
        self.responding += {"response.created": 1, "response.done": -1}.get(kind, 0)

    def _interruptible(self) -> bool:
        """Speech stops the agent: a client stops its playback at speech_started, also of an answer that was done."""
        detection = self.machine.config["audio"]["input"]["turn_detection"]
        return bool(detection and detection.get("interrupt_response"))

    def _hushed(self) -> None:
        """The client plays no more; what it has played may still be in the room."""
        if self._plays_until > self._loop.time():
            self._plays_until = 0.0
            self._ear.expect_echo(round(ECHO_TAIL_S * ev.IN_RATE))

    def _sounds(self, samples: int) -> None:
        """So much more will be played by a client that plays at once; it may come back through the microphone."""
        now = self._loop.time()
        self._plays_until = max(now, self._plays_until) + samples / ev.OUT_RATE
        self._ear.expect_echo(round((self._plays_until - now + ECHO_TAIL_S) * ev.IN_RATE))

    # ---- effects
    def _run(self, effect: ev.Out) -> None:
        match effect:
            case ev.Send(event):
                self._note(event)
                self._door.send(event)
            case ev.Play():
                self._sounds(effect.samples)
                self._door.play(effect)
            case ev.ClearPlayback():
                self._hushed()
                self._door.clear_playback()
            case ev.Generate():
                self._generate(effect)
            case ev.Confirm(gen):
                self._confirm(gen)
            case ev.Prepare():
                self._prepare(effect)
            case ev.Abort(gen):
                self._abort(gen)
            case ev.Progress(gen):
                if gen in self._tellers:
                    self._tellers[gen].tell(effect)
            case ev.Transcribe():
                self._transcribe(effect)
            case ev.ScoreTurn(gen, span):
                self._works[gen] = (None, None)
                self._ear.score_turn(self.store.samples(span), lambda p: self._turn_scored(gen, p))
            case ev.KeepAudio(span):
                self.store.keep(span)
            case ev.DropAudio(span):
                self.store.drop(span)
            case ev.ForgetAudio(before):
                self.store.forget(before)
            case ev.HangUp(code, reason):
                self._door.hang_up(code, reason)

    def _generate(self, effect: ev.Generate) -> None:
        gen = effect.gen
        try:
            if not effect.early:
                self._count_response()
            listener: Listener = "early" if effect.early else "confirmed"
            request = self._asking.answer(gen, effect.request, listener=listener, aside=effect.aside)
            work = self._graph.generate(request)
        except TooMany as e:
            self.feed(ev.Ended(gen, "failed", error=str(e), code=e.code or "rate_limit_exceeded"))
        except Refused as e:
            self.feed(failed(gen, e))
        else:
            self._tellers[gen] = Teller(work, self._loop)
            self._begin(gen, "early" if effect.early else "answer", work, pump_answer(gen, work, self._from(gen)))

    def _prepare(self, effect: ev.Prepare) -> None:
        gen = effect.gen
        try:
            request = self._asking.answer(gen, effect.request, listener="none", kind="prepare")
            work = self._graph.generate(request)
        except Refused as e:
            self.feed(failed(gen, e))
        else:
            self._begin(gen, "prepare", work, pump_answer(gen, work, self._from(gen)))

    def _transcribe(self, effect: ev.Transcribe) -> None:
        gen, partial = effect.gen, effect.kind == "partial"

        def tell(text: str | None, error: str) -> None:
            if gen in self._works or error:
                self.feed(ev.PartialTranscript(gen, text) if partial else ev.Transcribed(gen, text, error))

        try:
            request = self._asking.transcript(gen, effect.span, effect.recognition, listener=LISTENERS[effect.kind])
            work = self._graph.generate(request)
        except Refused as e:
            tell(None, str(e))
        else:
            self._begin(gen, f"transcript:{effect.kind}", work, pump_transcript(gen, work, tell))

    def _confirm(self, gen: str) -> None:
        try:
            self._count_response()
        except TooMany as e:
            self._abort(gen)
            self.feed(ev.Ended(gen, "failed", error=str(e), code=e.code or "rate_limit_exceeded"))
            return
        work = self._works.get(gen, (None, None))[0]
        if work is not None:
            work.tell(due_in_ms=0.0, heard_ms=0.0, listener="confirmed")

    def _begin(self, gen: str, kind: str, work: Generation, pump: Coroutine[Any, Any, None]) -> None:
        self._observer.began(gen, kind, work)
        task = self._spawn(pump)
        self._works[gen] = (work, task)
        task.add_done_callback(lambda _: self._finished(gen))

    def _from(self, gen: str) -> Callable[[ev.In], None]:
        """What a generation says counts only while it is wanted."""

        def feed(event: ev.In) -> None:
            if gen in self._works:
                self.feed(event)

        return feed

    def _finished(self, gen: str) -> None:
        if self._works.pop(gen, None) is not None:
            self._observer.ended(gen, aborted=False)
        if teller := self._tellers.pop(gen, None):
            teller.stop()

    def _abort(self, gen: str) -> None:
        work, task = self._works.pop(gen, (None, None))
        if teller := self._tellers.pop(gen, None):
            teller.stop()
        if work is not None and task is not None:
            work.abort()
            task.cancel()
            self._observer.ended(gen, aborted=True)

    def _turn_scored(self, gen: str, p: float | None) -> None:
        if self._works.pop(gen, None) is not None:
            self.feed(ev.TurnScored(gen, p))
