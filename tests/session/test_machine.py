"""The machine under hypothesis: any client, any voice, any model, in any order; the checker watches every effect.

The rules speak the domain (say k windows, stammer, a whole answer, barge in, a tool turn), because purely random ones
hardly ever get as far as two turns. ``ANTIPHON_EXAMPLES`` sets how many talks are tried.
"""

from __future__ import annotations

import json
import os
from collections import deque
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.pipelines.outputs import Usage
from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.request import Message, Text

from .talk import Talk, kinds, of, wire

DETECTION: list[Any] = [
    None,
    {"type": "server_vad", "silence_duration_ms": 200},
    {"type": "server_vad", "interrupt_response": False},
    {"type": "server_vad", "interrupt_response": True, "create_response": True, "idle_timeout_ms": 5_000},
    {"type": "server_vad", "create_response": False},
    {"type": "semantic_vad", "eagerness": "high"},
]


def features(
    early: bool, eager: bool, extras: bool, webrtc: bool, window: float, shortest: int, resume: bool, limit: int
) -> Features:
    return Features(
        early=early,
        eager_transcript=eager,
        partials=extras,
        prepare=extras,
        transport="webrtc" if webrtc else "websocket",
        window_s=window,
        min_interruption_ms=shortest,
        resume_after_false_interruption=resume,
        context_tokens=limit,
        kept_audio_s=3.0,
    )


class Talks(RuleBasedStateMachine):
    @initialize(
        features=st.builds(
            features,
            early=st.booleans(),
            eager=st.booleans(),
            extras=st.booleans(),
            webrtc=st.booleans(),
            window=st.sampled_from([1.0, 4.0, 4.0, float("inf")]),
            shortest=st.sampled_from([0, 0, 300]),
            resume=st.booleans(),
            limit=st.sampled_from([0, 0, 120]),
        ),
        lag=st.sampled_from([0, 0, 2]),
    )
    def begin(self, features: Features, lag: int) -> None:
        self.t = Talk(features)
        self.c = self.t.check
        self.lag = lag  # windows that are heard and not yet scored
        self.on_their_way: deque[ev.SpeechScored] = deque()
        self.gone = 0
        self.stopped = False  # the last answer, by a truncation
        self.played: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.spoken_text: dict[str, str] = {}

    # ---- every step goes through here

    def do(self, event: ev.In) -> list[ev.Out]:
        before = set(self.c.created) - set(self.c.ended)
        default, policy = self.c.default, self.t.session.config["audio"]["input"]["turn_detection"]
        held = {g for g, what in self.c.gens.items() if what in ("early", "prepare", "guess", "partial")}
        effects = self.t.do(event)
        self.stopped = self.stopped and self.c.default is None  # until the next begins
        events = wire(effects)
        if "input_audio_buffer.speech_started" in kinds(events):
            self._turn_began(effects, before, default, policy)
        if isinstance(event, ev.TextMade | ev.AudioMade | ev.CallMade | ev.Ended) and event.gen in held:
            assert not events, "what is held says nothing"
        for effect in effects:
            if isinstance(effect, ev.Play):
                self.sent[effect.item_id] = self.sent.get(effect.item_id, 0) + effect.samples
            if isinstance(effect, ev.Confirm):
                self._fits(effect.gen)
            if isinstance(effect, ev.ClearPlayback):
                self.sent = {item_id: self.played.get(item_id, 0) for item_id in self.sent}
        self._lead()
        return effects

    def _turn_began(self, effects: list[ev.Out], before: set[str], default: str | None, policy: Any) -> None:
        events = wire(effects)
        started = of(events, "input_audio_buffer.speech_started")[0]
        floor = max([self.c.cleared_at, *(b for _, b in self.c.owned)], default=0)
        onset = self.t.session.hearing._detector.onset  # type: ignore[union-attr]
        pad = policy.get("prefix_padding_ms", 300) * 16
        assert started["audio_start_ms"] <= max(onset - pad, floor, 0) // 16 + 1, "pre-roll lost"
        if not policy["interrupt_response"]:
            return
        assert default is None or default in self.c.ended, "barge-in ends the response"
        assert self.c.default is None, "nothing starts at a barge-in"
        self.c.old |= {rid for rid in before if rid in self.c.ended}
        cut = {item["id"] for rid in before & set(self.c.ended) for item in self.c.ended[rid]["output"]}
        at = kinds(events).index("input_audio_buffer.speech_started")
        assert at == 0, "the client hears of it first"
        for item in self.t.session.conversation.items.values():
            if item.ledger:
                done = item.ledger.lead(self.t.now) <= 0
                assert item.mark is not None or done, "still being heard and not marked"
                assert item.mark is not None or item.id not in cut, "cut short and not marked"

    def _fits(self, gen: str) -> None:
        """An early answer is released only if it answers the conversation as it is now."""
        request, session = self.c.requests[gen], self.t.session
        assert request.instructions == session.config["instructions"], "an answer to older instructions"
        spoken = [p.text for e in request.context if isinstance(e, Message) for p in e.parts if isinstance(p, Text)]
        typed = [part["text"] for i in session.conversation.in_order() for part in i.wire.get("content", ())
                 if part["type"] == "input_text"]  # fmt: skip
        if not self.t.features.context_tokens:
            assert [text for text in spoken if text in ("x", "y", "one", "two")] == typed, "an older conversation"

    def _lead(self) -> None:
        for item in self.t.session.conversation.items.values():
            if item.ledger:
                assert item.ledger.lead(self.t.now) <= self.t.features.window_s + 0.5 + 1e-6, "sent too far ahead"
                assert item.mark is None or 0 <= item.mark <= item.ledger.sent

    # ---- the user

    @rule(k=st.integers(2, 8))
    def say(self, k: int) -> None:
        self.hear([(1.0, 511)] * k)

    @rule(k=st.sampled_from([1, 3, 7, 20, 20, 90]))
    def hush(self, k: int) -> None:
        self.hear([(0.0, -1)] * k)

    @rule(k=st.integers(2, 5))
    def stammer(self, k: int) -> None:
        for _ in range(k):
            self.hear([(1.0, 511)] * 3 + [(0.0, -1)] * 3)

    @rule(k=st.integers(4, 40), end=st.sampled_from([0.0, 0.2, 1.0, None]))
    def turn(self, k: int, end: float | None) -> None:
        self.hear([(1.0, 511)] * k + [(0.0, -1)] * 3)
        scores = [g for g, what in self.c.gens.items() if what == "score"]
        for gen in scores:
            self.c.gens.pop(gen)
            self.do(ev.TurnScored(gen, end))
        self.hear([(0.0, -1)] * 18)

    @rule(
        windows=st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.4, 0.6, 1.0]), st.integers(-1, 511)), min_size=1, max_size=6),
        extra=st.integers(0, 700),
        repeat=st.booleans(),
    )
    def mumble(self, windows: list[tuple[float, int]], extra: int, repeat: bool) -> None:
        self.hear(windows, extra, repeat)

    def hear(self, windows: list[tuple[float, int]], extra: int = 0, repeat: bool = False) -> None:
        t = self.t
        for p, loud in windows:
            t.now += 0.032
            t.total += 512
            self.play(0.032)
            self.do(ev.AudioReceived(t.total))
            while t.scored + 512 <= t.total:
                t.scored += 512
                self.on_their_way.append(ev.SpeechScored(t.scored, p, t.scored - 512 + loud if loud >= 0 else -1))
            while len(self.on_their_way) > self.lag:
                score = self.on_their_way.popleft()
                behind = score.end <= self.gone
                began = of(wire(self.do(score)), "input_audio_buffer.speech_started")
                assert not (behind and began), "a turn began in samples that are gone"
                if score.p == 1.0 and score.loud != -1 and not behind:
                    assert not self.has("early", "guess"), "nothing made on a guess outlives it"
                if repeat:
                    late = wire(self.do(score))
                    assert not [e for e in late if e["type"].startswith("input_audio_buffer")], "the same score twice"
        t.total += extra
        self.do(ev.AudioReceived(t.total))
        if t.session.config["audio"]["input"]["turn_detection"] and not t.session.hearing.speaking:
            assert t.total - self.c.floor < 3 * 16_000 + 1_400 + self.lag * 512, "an open microphone fills memory"

    @rule(s=st.floats(0.001, 3))
    def wait(self, s: float) -> None:
        t = self.t
        until = t.now + s
        while t.session.deadline is not None and t.session.deadline <= until:
            before = t.session.deadline
            self.play(max(0.0, before - t.now))
            t.now = max(t.now, before)
            self.do(ev.Tick())
            assert t.session.deadline is None or t.session.deadline > before, "a timer that does not move"
        self.play(until - t.now)
        t.now = until

    def play(self, seconds: float) -> None:
        """WebRTC: the loudspeaker goes on, one item after the other."""
        left = round(seconds * 24_000)
        for item_id, sent in list(self.sent.items()):
            step = min(left, sent - self.played.get(item_id, 0))
            if step > 0:
                left -= step
                self.played[item_id] = self.played.get(item_id, 0) + step
                self.do(ev.Played(item_id, self.played[item_id]))

    # ---- the models

    def pick(self, data: st.DataObject, *wanted: str) -> str:
        return data.draw(st.sampled_from(sorted(g for g, what in self.c.gens.items() if what in wanted)))

    def has(self, *wanted: str) -> bool:
        return any(what in wanted for what in self.c.gens.values())

    @precondition(lambda self: self.has("early", "answer", "aside"))
    @rule(data=st.data(), text=st.sampled_from(["It", " is", " ten.", " Yes", ""]))
    def text(self, data: st.DataObject, text: str) -> None:
        self.do(ev.TextMade(self.pick(data, "early", "answer", "aside"), text))

    @precondition(lambda self: self.has("early", "answer", "aside"))
    @rule(data=st.data(), samples=st.integers(1, 12_000))
    def audio(self, data: st.DataObject, samples: int) -> None:
        self.do(ev.AudioMade(self.pick(data, "early", "answer", "aside"), b"", samples, ((samples, 2),)))

    @precondition(lambda self: self.has("early", "answer", "aside"))
    @rule(data=st.data(), seconds=st.integers(1, 8), done=st.booleans())
    def answer(self, data: st.DataObject, seconds: int, done: bool) -> None:
        gen = self.pick(data, "early", "answer", "aside")
        self.do(ev.TextMade(gen, "A long answer."))
        for n in range(seconds * 2):
            if gen in self.c.gens:
                self.do(ev.AudioMade(gen, b"", 12_000, ((12_000 * (n + 1), 14 * (n + 1) // (seconds * 2)),)))
        if done and gen in self.c.gens:
            self.finish(gen, "stop")
            assert not self.do(ev.TextMade(gen, "x")), "after its end"

    @precondition(lambda self: self.has("early", "answer", "aside"))
    @rule(data=st.data(), last=st.booleans(), n=st.integers(0, 1))
    def call(self, data: st.DataObject, last: bool, n: int) -> None:
        gen = self.pick(data, "early", "answer", "aside")
        self.do(ev.CallMade(gen, f"call_{gen}_{n}", "f", "{}" if last else "", last))

    @precondition(lambda self: self.has("answer"))
    @rule(data=st.data())
    def tool_turn(self, data: st.DataObject) -> None:
        gen = self.pick(data, "answer")
        self.do(ev.CallMade(gen, f"call_{gen}_t", "f", "{}", True))
        self.finish(gen, "stop")
        known = f"call_{gen}_t" in [i.wire.get("call_id") for i in self.t.session.conversation.items.values()]
        output = {"type": "function_call_output", "call_id": f"call_{gen}_t", "output": "7"}
        assert kinds(self.command("conversation.item.create", item=output))[0] == (
            "conversation.item.added" if known else "error"
        )
        self.command("response.create")

    @precondition(lambda self: self.has("early", "answer", "aside", "prepare"))
    @rule(data=st.data(), reason=st.sampled_from(["stop", "length", "failed"]))
    def ends(self, data: st.DataObject, reason: str) -> None:
        self.finish(self.pick(data, "early", "answer", "aside", "prepare"), reason)

    @precondition(lambda self: self.has("early"))
    @rule(data=st.data(), reason=st.sampled_from(["failed", "stop"]))
    def early_ends_and_the_turn_is_over(self, data: st.DataObject, reason: str) -> None:
        self.finish(self.pick(data, "early"), reason)
        self.hear([(0.0, -1)] * 20)

    @rule(text=st.sampled_from(["one", "two"]), instructions=st.booleans())
    def something_changes_while_an_answer_is_held(self, text: str, instructions: bool) -> None:
        self.hear([(1.0, 511)] * 6 + [(0.0, -1)] * 3)
        if instructions:
            self.command("session.update", session={"type": "realtime", "instructions": text})
        else:
            self.create(text, front=False)
        self.hear([(0.0, -1)] * 20)

    def finish(self, gen: str, reason: Any) -> None:
        what = self.c.gens.pop(gen)
        if what == "early" and reason == "failed":
            self.c.failed_early.add(gen)
        self.do(ev.Ended(gen, reason, Usage(5, 1, 2), error="boom"))

    @rule(n=st.integers(0, 9))
    def late_model(self, n: int) -> None:
        assert not self.t.do(ev.TextMade(f"gen_{10_000 + n}", "x")) or not wire(self.t.effects)

    @precondition(lambda self: self.has("guess", "final"))
    @rule(data=st.data(), text=st.sampled_from(["hi", "hi", " ", None]))
    def transcribed(self, data: st.DataObject, text: str | None) -> None:
        gen = self.pick(data, "guess", "final")
        self.c.gens.pop(gen)
        self.do(ev.Transcribed(gen, text))

    @precondition(lambda self: self.has("partial"))
    @rule(data=st.data(), text=st.sampled_from(["hi", "hi there", None]))
    def read_partly(self, data: st.DataObject, text: str | None) -> None:
        gen = self.pick(data, "partial")
        self.c.gens.pop(gen)
        self.do(ev.PartialTranscript(gen, text))

    @rule(partials=st.booleans(), early=st.booleans())
    def load(self, partials: bool, early: bool) -> None:
        self.do(ev.Spare(partials, early))

    # ---- the client

    @rule(kind=st.sampled_from(["input_audio_buffer.commit", "input_audio_buffer.clear", "response.cancel", "response.create"]))
    def plain(self, kind: str) -> None:
        self.command(kind)

    @rule(mods=st.sampled_from([["text"], ["audio"]]), whole=st.booleans())
    def aside(self, mods: list[str], whole: bool) -> None:
        params: dict[str, Any] = {"conversation": "none", "output_modalities": mods}
        self.command("response.create", response=params if whole else dict(params, input=[]))

    @rule(detection=st.sampled_from(DETECTION), instructions=st.sampled_from(["a", "b"]), shown=st.booleans())
    def update(self, detection: Any, instructions: str, shown: bool) -> None:
        listening = {"turn_detection": detection, "transcription": {"model": "w"} if shown else None}
        session = {"type": "realtime", "instructions": instructions, "audio": {"input": listening}}
        assert "session.updated" in kinds(self.command("session.update", session=session))

    @rule(text=st.sampled_from(["x", "y"]), front=st.booleans())
    def create(self, text: str, front: bool) -> None:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        self.command("conversation.item.create", previous_item_id="root" if front else None, item=item)

    @precondition(lambda self: self.c.items)
    @rule(data=st.data(), verb=st.sampled_from(["retrieve", "delete", "truncate"]), ms=st.integers(0, 5_000))
    def item(self, data: st.DataObject, verb: str, ms: int) -> None:
        item_id = data.draw(st.sampled_from(self.c.items))
        self.command(f"conversation.item.{verb}", item_id=item_id, content_index=0, audio_end_ms=ms)

    @precondition(lambda self: self.c.texts)
    @rule(data=st.data(), ms=st.integers(0, 20_000))
    def truncate_an_answer(self, data: st.DataObject, ms: int) -> None:
        item_id = data.draw(st.sampled_from(sorted(self.c.texts)))
        self.command("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=ms)

    @precondition(lambda self: self.c.default)
    @rule()
    def barge_in(self) -> None:
        self.hear([(1.0, 511)] * 12)

    @rule()
    def clear_playback(self) -> None:
        self.command("output_audio_buffer.clear")

    def command(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        before, active = json.dumps(self.t.session.config), self.c.default
        out = wire(self.do(ev.Command({"type": kind, **fields})))
        if kind in ("input_audio_buffer.commit", "input_audio_buffer.clear") and "error" not in kinds(out):
            self.gone = self.t.total
        waits = kind == "response.create" and self.t.session.responses.active  # for the end of one that made calls
        # Who stops playing may say both: the first has ended the answer, and the second has nothing to say.
        both = kind == "response.cancel" and self.stopped and active is None
        assert out or waits or both or kind == "output_audio_buffer.clear", f"{kind} was not answered"
        truncated = kind == "conversation.item.truncate" and "response.done" in kinds(out)
        self.stopped = truncated or (self.stopped and kind != "response.cancel")
        if kind != "session.update":
            assert json.dumps(self.t.session.config) == before
        return out

    # ---- always

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "t"):
            return
        session = self.t.session
        active = session.responses.active
        assert (active.id if active else None) == self.c.default
        assert set(self.c.gens) == session.running, "awaited is what runs"
        kept = {item.span for item in session.conversation.items.values() if item.span}
        assert kept == self.c.kept, "an item's samples are kept while it lives"
        assert session.conversation.order == [i for i in session.conversation.order if i in self.c.alive]
        assert set(session.conversation.items) == self.c.alive

    def teardown(self) -> None:
        if hasattr(self, "t"):
            self.t.close()


TestTalks = Talks.TestCase
TestTalks.settings = settings(
    max_examples=int(os.getenv("ANTIPHON_EXAMPLES", "40")),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.generate] if os.getenv("ANTIPHON_NO_SHRINK") else list(Phase),
    suppress_health_check=list(HealthCheck),
)
