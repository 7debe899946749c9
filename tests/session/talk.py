"""A session in a test's hands: a clock, a microphone, a model that says what it is told, and the checker on everything."""

from __future__ import annotations

import itertools
from typing import Any

from antiphon.pipelines.outputs import Usage
from antiphon.session import config
from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.machine import Session
from antiphon.session.request import Message, Text

from .checker import Checker

WINDOW_S = 512 / 16_000


class Talk:
    """``sent`` are the wire events, ``effects`` everything, of the last step; the checker sees all of them."""

    def __init__(self, features: Features | None = None, update: dict[str, Any] | None = None, **fresh: Any) -> None:
        count = itertools.count()
        self.features = features or Features()
        start = config.fresh("m", "sess_1", 3600, features=self.features, **fresh)
        self.session = Session(start, new_id=lambda kind: f"{kind}_{next(count)}", features=self.features)
        self.check = Checker(self.features.window_s)
        self.now = 100.0
        self.total = self.scored = 0
        self.effects: list[ev.Out] = []
        self._take(self.session.begin(self.now))
        if update is not None:
            self.update(**update)

    # ---- steps

    def do(self, event: ev.In) -> list[ev.Out]:
        self.check.now, self.check.total = self.now, self.total
        return self._take(self.session.handle(event, self.now))

    def _take(self, effects: list[ev.Out]) -> list[ev.Out]:
        self.effects = effects
        self.check.see(effects)
        return effects

    def command(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        return wire(self.do(ev.Command({"type": kind, **fields})))

    def update(self, turn_detection: Any = ..., transcription: Any = ..., **fields: Any) -> list[dict[str, Any]]:
        listening: dict[str, Any] = {}
        if turn_detection is not ...:
            listening["turn_detection"] = turn_detection
        if transcription is not ...:
            listening["transcription"] = transcription
        return self.command("session.update", session={"type": "realtime", "audio": {"input": listening}, **fields})

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Time passes; ticks come when the session wants them."""
        until, out = self.now + seconds, []
        while self.session.deadline is not None and self.session.deadline <= until:
            before = self.session.deadline
            self.now = max(self.now, before)
            out += wire(self.do(ev.Tick()))
            assert self.session.deadline is None or self.session.deadline > before, "a timer that does not move"
        self.now = until
        return out

    # ---- the microphone

    def hear(self, windows: list[tuple[float, int]]) -> list[ev.Out]:
        """Windows of (probability, last loud sample in the window or -1)."""
        out: list[ev.Out] = []
        for p, loud in windows:
            self.now += WINDOW_S
            self.total += 512
            out += self.do(ev.AudioReceived(self.total))
            while self.scored + 512 <= self.total:
                self.scored += 512
                at = self.scored - 512 + loud if loud >= 0 else -1
                out += self.do(ev.SpeechScored(self.scored, p, at))
        return out

    def say(self, windows: int = 10) -> list[dict[str, Any]]:
        return wire(self.hear([(1.0, 511)] * windows))

    def hush(self, windows: int = 20) -> list[dict[str, Any]]:
        return wire(self.hear([(0.0, -1)] * windows))

    def turn(self, windows: int = 10) -> list[dict[str, Any]]:
        """Speech, and silence that ends it under the defaults."""
        return self.say(windows) + self.hush(20)

    def append(self, seconds: float) -> None:
        self.now += seconds
        self.total += round(seconds * 16_000)
        self.do(ev.AudioReceived(self.total))

    # ---- the model

    def gen(self, *kinds: str) -> str:
        """The newest generation that runs."""
        wanted = kinds or ("answer", "aside", "early")
        return [gen for gen, what in self.check.gens.items() if what in wanted][-1]

    def make(self, gen: str, text: str = "", seconds: float = 0.0, chunk_s: float = 0.5) -> list[dict[str, Any]]:
        """Text, then its audio in chunks with marks in proportion."""
        out = wire(self.do(ev.TextMade(gen, text))) if text else []
        total, made = round(seconds * 24_000), 0
        while made < total:
            step = min(round(chunk_s * 24_000), total - made)
            made += step
            out += wire(self.do(ev.AudioMade(gen, b"pcm", step, ((made, len(text) * made // total),), exact=False)))
        return out

    def end(self, gen: str, reason: Any = "stop", usage: Usage | None = None, error: str = "") -> list[dict[str, Any]]:
        self.check.gens.pop(gen, None)
        return wire(self.do(ev.Ended(gen, reason, usage or Usage(20, 5, 7), error)))

    def transcribe(self, text: str | None, *kinds: str) -> list[dict[str, Any]]:
        gen = [g for g, what in self.check.gens.items() if what in (kinds or ("guess", "final"))][-1]
        self.check.gens.pop(gen)
        return wire(self.do(ev.Transcribed(gen, text)))

    def close(self) -> None:
        self.do(ev.Closed())
        assert not self.check.gens, f"left running: {self.check.gens}"
        assert self.session.handle(ev.Closed(), self.now) == [] and self.session.handle(ev.Tick(), self.now) == []
        assert self.session.deadline is None and not self.session.running

    # ---- reading

    @property
    def request(self) -> Any:
        """What the newest generation was asked with."""
        return list(self.check.requests.values())[-1]


def wire(effects: list[ev.Out]) -> list[dict[str, Any]]:
    return [effect.event for effect in effects if isinstance(effect, ev.Send)]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def assistant(talk: Talk) -> list[str]:
    """What the model would be told that it said."""
    talk.session.responses.active or talk.command("response.create")
    entries = [e for e in talk.request.context if isinstance(e, Message) and e.role == "assistant"]
    return ["".join(p.text for p in e.parts if isinstance(p, Text)) for e in entries]
