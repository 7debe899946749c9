"""Watches every effect of a session and holds it to the rules. Knows the vocabulary and nothing of the machine."""

from __future__ import annotations

from typing import Any

from antiphon.session import events as ev
from antiphon.session.request import Heard, Message, Request, Span

from .wire_shapes import check_shape

PRE_ROLL = 300 * 16


class Checker:
    """``see`` takes effects in order. ``now`` and ``total`` are kept by whoever drives the session."""

    def __init__(self, window_s: float = 4.0) -> None:
        self.now = 0.0
        self.total = 0
        self.window_s = window_s
        self.gens: dict[str, str] = {}  # what runs: gen -> early, answer, aside, prepare, guess, partial, final, score
        self.requests: dict[str, Request] = {}
        self.ever: set[str] = set()
        self.aborted: set[str] = set()
        self.failed_early: set[str] = set()
        self.spans: dict[str, Span] = {}  # transcripts asked for
        self.kept: set[Span] = set()
        self.owned: list[Span] = []
        self.floor = 0
        self.earlies = self.guesses = self.turn_from = 0
        self.open: dict[str, set[tuple[str, Any]]] = {}
        self.created: list[str] = []
        self.ended: dict[str, dict[str, Any]] = {}
        self.default: str | None = None
        self.speech: str | None = None
        self.stopped: str | None = None
        self.empty: str | None = None  # the item of a silence that lasted too long
        self.cleared_at = 0
        self.items: list[str] = []  # ids in the order of their adding
        self.alive: set[str] = set()
        self.texts: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.until = 0.0
        self.old: set[str] = set()  # responses that were there when the user cut in
        self.wire: list[dict[str, Any]] = []
        self.completed: dict[str, str] = {}
        self.partials: dict[str, str] = {}
        self.hung_up = False
        self.pad = PRE_ROLL

    def see(self, effects: list[ev.Out]) -> None:
        for effect in effects:
            assert not self.hung_up, "nothing comes after the hanging up"
            self._see(effect)

    def _see(self, effect: ev.Out) -> None:
        match effect:
            case ev.Generate(gen, request, early, aside):
                self._begin(gen, "early" if early else "aside" if aside else "answer")
                self.requests[gen] = request
                self._audible(request)
                assert "prepare" not in self.gens.values() or aside, "a preparation beside the answer it prepares"
                assert early or aside or "early" not in self.gens.values(), "a held answer that fits no more runs on"
                if early:
                    self.earlies += 1
                    assert self.earlies <= self._attempts(), "more than two early answers in a turn, and one for 2 s of it"
                    assert list(self.gens.values()).count("early") == 1, "one early answer at a time"
            case ev.Prepare(gen, request):
                self._begin(gen, "prepare")
                self._audible(request)
                assert list(self.gens.values()).count("prepare") == 1
            case ev.Confirm(gen):
                assert gen not in self.failed_early, "a failed early answer was released"
                assert gen not in self.aborted
                assert self.gens.get(gen, "early") == "early", "only an early answer is confirmed"
                if gen in self.gens:
                    self.gens[gen] = "answer"
            case ev.Abort(gen):
                assert gen in self.ever, "aborted what was never begun"
                assert gen not in self.aborted, "aborted twice"
                self.aborted.add(gen)
                self.gens.pop(gen, None)
            case ev.Transcribe(gen, span, _, kind):
                assert self.there(span), f"samples are gone: {span}"
                self._begin(gen, kind)
                self.spans[gen] = span
                for one in ("guess", "partial"):
                    assert list(self.gens.values()).count(one) <= 1, f"one {one} at a time"
                if kind == "guess":
                    self.guesses += 1
                    assert self.guesses <= self._attempts(), "more than two guesses in a turn, and one for 2 s of it"
            case ev.ScoreTurn(gen, span):
                assert self.there(span)
                self._begin(gen, "score")
                assert list(self.gens.values()).count("score") == 1
            case ev.KeepAudio(span):
                assert self.there(span)
                for a, b in self.owned:
                    assert b <= span[0] or span[1] <= a, "input audio doubled"
                self.owned.append(span)
                self.kept.add(span)
            case ev.DropAudio(span):
                self.kept.remove(span)
            case ev.ForgetAudio(before):
                assert self.floor <= before <= self.total
                self.floor = before
            case ev.Send(event):
                self.wire.append(event)
                check_shape(event)
                self._sent(event)
            case ev.Play(response_id, _, _, samples):
                assert response_id not in self.old, "audio of the old response after speech_started"
                assert samples > 0 and response_id in self.open
            case ev.HangUp():
                self.hung_up = True
            case ev.Progress(gen):
                assert self.gens.get(gen) in ("answer", "aside")
            case ev.ClearPlayback() | ev.ContextTrimmed():
                pass
            case other:
                raise AssertionError(f"not in the vocabulary: {other}")

    def _attempts(self) -> int:
        return 2 + (self.total - self.turn_from) // 32_000

    def _begin(self, gen: str, what: str) -> None:
        assert gen not in self.ever
        self.ever.add(gen)
        self.gens[gen] = what

    def _audible(self, request: Request) -> None:
        for entry in request.context:
            for part in entry.parts if isinstance(entry, Message) else ():
                if isinstance(part, Heard):
                    assert self.there(part.span), f"asked to hear samples that are gone: {part.span}"

    def there(self, span: Span) -> bool:
        inside = any(a <= span[0] < span[1] <= b for a, b in self.kept)
        return inside or self.floor <= span[0] < span[1] <= self.total

    # ---- the wire

    def _sent(self, w: dict[str, Any]) -> None:
        kind: str = w["type"]
        rid = w.get("response_id") or (w.get("response") or {}).get("id")
        if rid and kind.startswith("response."):
            assert rid not in self.ended, f"{kind} after the end of {rid}"
            assert kind == "response.created" or rid in self.open, f"{kind} of a response that never began"
        if kind.startswith("response."):
            self._of_response(kind, rid, w)
        elif kind.startswith("input_audio_buffer."):
            self._of_buffer(kind, w)
        elif kind.startswith("conversation.item."):
            self._of_item(kind, w)

    def _of_response(self, kind: str, rid: str, w: dict[str, Any]) -> None:
        if kind == "response.created":
            self.open[rid] = set()
            self.created.append(rid)
            if w["response"]["conversation_id"]:
                assert self.default is None, "two active default responses"
                self.default = rid
        elif kind == "response.done":
            assert not self.open.pop(rid), f"open at the end: {rid}"
            self.ended[rid] = w["response"]
            if self.default == rid:
                self.default = None
        elif kind in ("response.output_item.added", "response.content_part.added"):
            self.open[rid].add((kind, w.get("item_id") or w["item"]["id"]))
            if kind == "response.output_item.added":
                assert w["item"]["status"] == "in_progress", "else a client runs the tool at once"
        elif kind in ("response.output_item.done", "response.content_part.done"):
            self.open[rid].remove((kind.replace("done", "added"), w.get("item_id") or w["item"]["id"]))
        elif kind in ("response.output_audio_transcript.delta", "response.output_text.delta"):
            self.texts[w["item_id"]] = self.texts.get(w["item_id"], "") + w["delta"]
        elif kind in ("response.output_audio_transcript.done", "response.output_text.done"):
            assert self.texts.get(w["item_id"], "") == w.get("transcript", w.get("text"))
        elif kind == "response.function_call_arguments.delta":
            self.arguments[w["item_id"]] = self.arguments.get(w["item_id"], "") + w["delta"]
        elif kind == "response.function_call_arguments.done":
            assert self.arguments.get(w["item_id"], "") == w["arguments"]
        elif kind == "response.output_audio.delta":
            assert rid not in self.old, "audio of the old response after speech_started"

    def _of_buffer(self, kind: str, w: dict[str, Any]) -> None:
        if kind.endswith("speech_started"):
            assert self.speech is None, "started twice"
            self.speech, self.stopped = w["item_id"], None
            self.earlies = self.guesses = 0
            self.turn_from = w["audio_start_ms"] * 16
        elif kind.endswith("speech_stopped"):
            assert self.speech == w["item_id"], "stopped without a start"
            self.speech, self.stopped = None, w["item_id"]
        elif kind.endswith("timeout_triggered"):
            self.empty = w["item_id"]
        elif kind.endswith("committed") and w["item_id"] == self.empty:
            assert self.speech is None, "a silence while somebody speaks"  # what was said before it may still be committed
        elif kind.endswith("committed"):
            assert self.speech is None, "committed before it stopped"
            assert self.stopped in (None, w["item_id"]), "another id than the one announced"
            self.stopped = None
            for gen in [gen for gen, what in self.gens.items() if what == "guess"]:
                self.gens[gen] = "final"  # it is the item's transcript, or is dropped in the same breath
        elif kind.endswith("cleared"):
            self.stopped, self.cleared_at = None, self.total

    def _of_item(self, kind: str, w: dict[str, Any]) -> None:
        if kind.endswith((".added", ".done")):
            before = w["previous_item_id"]
            assert before is None or before in self.items, "previous_item_id of an item that nobody has seen"
            if kind.endswith("added"):
                assert w["item"]["id"] not in self.alive, "added twice"
                self.items.append(w["item"]["id"])
                self.alive.add(w["item"]["id"])
            else:
                assert w["item"]["id"] in self.alive, "done before added"
        elif kind.endswith("deleted"):
            self.alive.remove(w["item_id"])
        elif kind.endswith("transcription.delta"):
            self.partials[w["item_id"]] = self.partials.get(w["item_id"], "") + w["delta"]
        elif kind.endswith(("transcription.completed", "transcription.failed")):
            assert w["item_id"] in self.alive
            assert w["item_id"] not in self.completed, "two transcripts of one item"
            self.completed[w["item_id"]] = w.get("transcript", "")
        elif kind.endswith("truncated"):
            assert w["audio_end_ms"] >= 0
