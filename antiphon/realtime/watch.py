"""One session's observer: reads the machine's events and effects and fills the metrics and the trace."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.realtime.metrics import Metrics
from antiphon.realtime.state import Generation
from antiphon.realtime.tracing import SessionTrace, Turn
from antiphon.session import events as ev

VOICED = 0.5
RECEIPT_S = 30.0
ONSET_GAP_S = 0.15
"""So much without voice, and what comes next begins anew: a word soon after a turn is not the turn's beginning."""


class Watch:
    """``spawn_aside`` runs a coroutine that may outlive the session: the wait for an abort's last receipt."""

    def __init__(self, metrics: Metrics, trace: SessionTrace, spawn_aside: Callable[[Any], Any]) -> None:
        self._metrics = metrics
        self._trace = trace
        self._spawn_aside = spawn_aside
        self._works: dict[str, tuple[str, Generation]] = {}
        self._early: set[str] = set()
        self._turn: Turn | None = None
        self._answering: dict[str, Turn] = {}
        self._answered: Turn | None = None
        self._received = 0
        self._last_voiced = 0.0
        self._onset: float | None = None
        self._plays_until: float | None = None
        self._counted: Counter[str] = Counter()
        self._asked_last: dict[str, float] = {}

    # ---- what the machine did
    def saw(self, event: ev.In | None, effects: list[ev.Out], now: float) -> None:
        if isinstance(event, ev.AudioReceived):
            self._received = event.total
        elif isinstance(event, ev.SpeechScored):
            self._heard(event, now)
        elif isinstance(event, ev.Transcribed) and self._turn is not None and event.text is not None:
            self._turn.mark("transcript_known", now)
        interrupting = False
        for effect in effects:
            if isinstance(effect, ev.Send):
                interrupting |= effect.event["type"] == "input_audio_buffer.speech_started"
                self._sent(effect.event, now, interrupting)
            elif isinstance(effect, ev.Play):
                self._first({"response_id": effect.response_id}, "first_audio", now)
                self._played({"response_id": effect.response_id, "delta": effect.pcm}, now)
            elif isinstance(effect, ev.Generate):
                self._asked(effect, now)
            elif isinstance(effect, ev.Confirm):
                self._won(effect.gen, now)
            elif isinstance(effect, ev.Abort) and effect.gen in self._early:
                self._lost(effect.gen)

    def _heard(self, score: ev.SpeechScored, now: float) -> None:
        if score.p >= VOICED:
            end = score.loud if score.loud is not None and score.loud > 0 else score.end
            at = now - max(0, self._received - end) / ev.IN_RATE
            if self._onset is None:
                self._onset = at - ev.WINDOW / ev.IN_RATE
            self._last_voiced = at
        elif now - self._last_voiced > ONSET_GAP_S:
            self._onset = None

    def _asked(self, effect: ev.Generate, now: float) -> None:
        if effect.early:
            self._early.add(effect.gen)
            self._metrics.early.labels("started").inc()
            if self._turn is not None:
                self._turn.mark("early_started", now)
        elif self._turn is not None:
            self._turn.mark("asked", now)

    def _won(self, gen: str, now: float) -> None:
        self._early.discard(gen)
        self._metrics.early.labels("won").inc()
        if self._turn is not None:
            self._turn.early = "won"
            self._turn.mark("confirmed", now)

    def _lost(self, gen: str) -> None:
        self._early.discard(gen)
        self._metrics.early.labels("wasted").inc()
        if self._turn is not None and self._turn.early is None:
            self._turn.early = "wasted"

    # ---- what the client was told
    def _sent(self, event: ev.Json, now: float, interrupting: bool) -> None:
        match event["type"]:
            case "error":
                self._metrics.error(event["error"].get("code"))
            case "input_audio_buffer.speech_started":
                self._turn = self._begin(now, event["item_id"], self._onset)
                self._turn.mark("speech_started", now)
            case "input_audio_buffer.speech_stopped":
                self._metrics.turns.labels("spoken").inc()
                self._onset = None
                if self._turn is not None:
                    self._turn.mark("last_voiced", max(self._last_voiced, self._turn.began))
                    self._turn.mark("speech_stopped", now)
                    self._phase("silence", now - self._last_voiced)
            case "conversation.item.input_audio_transcription.completed":
                if self._turn is not None and self._turn.item_id == event["item_id"]:
                    self._turn.mark("transcript_sent", now)
                    if "last_voiced" in self._turn.at:
                        self._phase("transcript", now - self._turn.at["last_voiced"])
            case "response.created":
                self._created(event["response"], now)
            case "response.output_text.delta" | "response.output_audio_transcript.delta":
                self._first(event, "first_text", now)
            case "response.output_audio.delta":
                self._first(event, "first_audio", now)
                self._played(event, now)
            case "response.done":
                self._done(event["response"], now, interrupting)

    def _begin(self, now: float, item_id: str | None, onset: float | None = None) -> Turn:
        began = onset if onset is not None and onset <= now else now
        turn = Turn(began, time.time() - (now - began), item_id=item_id)
        self._trace.add(turn)
        return turn

    def _created(self, response: ev.Json, now: float) -> None:
        turn = self._turn
        if turn is None or turn.response_id is not None or response.get("conversation_id") is None:
            turn = self._begin(now, None)
        if self._turn is turn or response.get("conversation_id") is not None:
            self._turn = turn
            self._answered = None
        turn.response_id = response["id"]
        turn.generation = turn.generation or self._asked_last
        turn.mark("response_created", now)
        self._answering[response["id"]] = turn

    def _first(self, event: ev.Json, name: str, now: float) -> None:
        turn = self._answering.get(event["response_id"])
        if turn is None or name in turn.at:
            return
        turn.mark(name, now)
        if "last_voiced" in turn.at:
            since = now - turn.at["last_voiced"]
            self._phase(name, since)
            if name == "first_audio":
                self._phase("voice_to_voice", since)

    def _played(self, event: ev.Json, now: float) -> None:
        """Seconds until a client that plays at once has played all it was sent."""
        pcm = event.get("delta")
        turn = self._answering.get(event["response_id"])
        if turn is None or pcm is None:
            return
        seconds = len(pcm) / ev.OUT_RATE
        if turn.audio_ms and self._plays_until is not None and now > self._plays_until:
            self._metrics.underruns.inc()
        self._plays_until = max(now, self._plays_until or now) + seconds
        turn.audio_ms += seconds * 1000

    def _done(self, response: ev.Json, now: float, interrupting: bool) -> None:
        status = response["status"]
        self._metrics.responses.labels(status).inc()
        turn = self._answering.pop(response["id"], None)
        if turn is None:
            return
        turn.status = status
        turn.mark("response_done", now)
        self._phase("response", now - turn.at["response_created"])
        reason = (response.get("status_details") or {}).get("reason")
        if interrupting or reason == "turn_detected":
            turn.interrupted = True
            self._plays_until = None
            if self._onset is not None:
                self._metrics.barge_in_stop.observe(max(0.0, now - self._onset))
        elif response.get("conversation_id") is not None:
            self._answered = turn
        self._trace.done(turn)
        if turn is self._turn:
            self._turn = None

    def _phase(self, name: str, seconds: float) -> None:
        self._metrics.phase.labels(name).observe(max(0.0, seconds))

    # ---- generations
    def began(self, gen: str, kind: str, work: Generation) -> None:
        self._metrics.generations.labels(kind).inc()
        self._works[gen] = (kind, work)
        if kind in ("answer", "early"):
            self._asked_last = work.timeline
            if self._turn is not None:
                self._turn.generation = work.timeline  # by reference: it grows while the work goes on

    def ended(self, gen: str, *, aborted: bool) -> None:
        kind, work = self._works.pop(gen, ("", None))
        if work is None:
            return
        if aborted:
            self._metrics.aborts.labels(kind).inc()
            self._spawn_aside(self._await_receipts(work))
        else:
            self._metrics.stages(work.timeline)

    async def _await_receipts(self, work: Generation) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECEIPT_S):
                await work.released()
                self._metrics.released(work.timeline)

    def counted(self, counts: Mapping[str, int]) -> None:
        cut = counts.get("interruptions", 0) - self._counted["interruptions"]
        self._metrics.interruptions.inc(cut)
        if cut and self._answered is not None:  # made to its end, and not heard to it
            self._answered.interrupted, self._plays_until = True, None
        self._metrics.conversation({name: number - self._counted[name] for name, number in counts.items()})
        self._counted = Counter(counts)

    def broke(self, error: Exception) -> None:
        self._metrics.broken.inc()
