"""What the tokens of one answer mean: text that is said, tool calls that are not, and its end. No tensor is touched here."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch

from antiphon.pipelines.engines.torch.guided import Guide, Guides
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.outputs import CallDelta
from antiphon.pipelines.qwen3_omni import grammar
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer
from antiphon.pipelines.qwen3_omni.stops import StopScan
from antiphon.pipelines.requests import GenerateRequest, Tool

MAX_CALLS = 8


@dataclass(frozen=True, slots=True)
class End:
    """The answer is over. ``token``: shown but not spoken; ``shown``: text before a stop string, inside a token."""

    reason: Literal["stop", "length", "tool_calls"]
    token: int = -1
    shown: str = ""


Piece = int | CallDelta | End
"""A token that is said, a piece of a call, or the end, which is the last."""


class Marks:
    """The family's two marks of a call in one tokenizer. ``known``: it has them as tokens."""

    def __init__(self, tokenizer: Any) -> None:
        added = tokenizer.get_added_vocab()
        self.begin: int = added.get(grammar.BEGIN, -1)
        self.end: int = added.get(grammar.END, -1)
        self.known = self.begin >= 0 and self.end >= 0


class Answer:
    """``limit`` tokens at most; ``ends``: the ids that end it. ``made`` tokens so far, ``last`` the newest. ``offered``: the
    tools that may be called; ``barred``: the token that may not be said (-1: none).

    ``allowed`` is what the next token is chosen from, None for everything.
    """

    def __init__(
        self, body: GenerateRequest, tokenizer: Any, marks: Marks, guides: Guides, limit: int, ends: frozenset[int]
    ) -> None:
        stops = body.thinking.stop
        self.limit = limit
        self.ends = ends
        self.made = 0
        self.last = -1
        self._stops = StopScan(stops, Detokenizer(tokenizer) if stops else None)
        self._tokenizer = tokenizer
        self._marks = marks
        self._parallel = body.parallel_tool_calls
        self._call: Call | None = None
        self._calls = 0
        self.offered = offered = _offered(body)
        if body.tools and not marks.known:
            raise Refused("tools: this checkpoint's tokenizer has no marks for tool calls", param="tools")
        self.barred = marks.begin if body.tools and not offered else -1
        self._calling = Calling(guides, grammar.call(offered, marks.begin, marks.end) if offered else "")
        self._guide = self._begins_with(body, offered, guides)

    def _begins_with(self, body: GenerateRequest, offered: tuple[Tool, ...], guides: Guides) -> Guide | None:
        if offered and body.tool_choice.mode in ("required", "function"):
            return self._calling.start()
        if body.response_format.kind != "text":
            marks = self._marks
            return guides.start(grammar.formatted(body.response_format, offered, marks.begin, marks.end), "response_format")
        if offered:
            self._calling.start()  # a schema that cannot be kept is refused now, not in the middle of the answer
        return None

    def allowed(self, vocabulary: int) -> torch.Tensor | None:
        """bool [vocabulary] on the CPU, or None."""
        if self._guide is not None:
            return self._guide.allowed()
        if self.barred < 0:
            return None
        mask = torch.ones(vocabulary, dtype=torch.bool)
        mask[self.barred] = False
        return mask

    def take(self, token: int) -> list[Piece]:
        """What this token brings. After an End no more may come. Raises StageFailed for a call that cannot be made, which no
        guide lets through."""
        self.made += 1
        self.last = token
        if self._calls:
            return self._in_calls(token)
        if token in self.ends:
            return [*self._stops.flush(), End("stop")]
        if token == self._marks.begin and self._calling.grammar:
            return [*self._stops.flush(), *self._next_call(token)]
        if self._guide is not None:
            self._guide.take(token)
        safe = self._stops.push(token)
        if self._stops.hit is not None:
            return [*safe, End("stop", shown=self._stops.hit)]
        if self.made == self.limit:
            said = [*safe, *self._stops.flush()]
            return [*said[:-1], End("length", token=token)]
        return list(safe)

    def over(self, reason: Literal["stop", "length"]) -> list[Piece]:
        """Whoever writes it has ended it, without a token that says so."""
        if self._call is not None and reason == "stop":
            raise _broken("is cut")
        return [*self._stops.flush(), End("tool_calls" if self._calls and self._call is None else reason)]

    def _in_calls(self, token: int) -> list[Piece]:
        final = self.made == self.limit
        if self._call is None:  # behind a call: white space and the next one, or the end; nothing else is said any more
            if token == self._marks.begin and self._calls < MAX_CALLS:
                return self._next_call(token)
            blank = token not in self.ends and not self._tokenizer.decode([token]).strip()
            return [] if blank and not final else [End("tool_calls")]
        assert self._guide is not None
        self._guide.take(token)
        if token == self._marks.end:
            pieces: list[Piece] = [self._call.ended({tool.name for tool in self.offered})]
            self._call = self._guide = None
            over = final or not self._parallel or self._calls == MAX_CALLS
            return [*pieces, End("tool_calls")] if over else pieces
        pieces = [*self._call.push(token)]
        if final:
            pieces += [*self._call.cut(), End("length")]
        return pieces

    def _next_call(self, token: int) -> list[Piece]:
        if self._guide is None:
            self._guide = self._calling.start()
        self._guide.take(token)
        self._call = Call(self._calls, Detokenizer(self._tokenizer))
        self._calls += 1
        return [End("length")] if self.made == self.limit else []


class Call:
    """One call, read as it is written in the form of ``grammar.call``."""

    def __init__(self, index: int, text: Detokenizer) -> None:
        self.index = index
        self.id = f"call_{secrets.token_hex(12)}"
        self.name = ""
        self._text = text
        self._held = ""
        self._arguments = ""

    def push(self, token: int) -> list[CallDelta]:
        """What can be told. The last characters are held back: they may be the call's own end."""
        self._held += self._text.add(token)
        if not self.name:
            head, found, rest = self._held.partition(grammar.MIDDLE)
            if not found:
                return []
            try:
                self.name, self._held = grammar.name(head), rest
            except ValueError:
                raise _broken("has no name") from None
        told, self._held = self._held[: -len(grammar.TAIL)], self._held[-len(grammar.TAIL) :]
        return [self._delta(told)] if told else []

    def ended(self, known: Collection[str]) -> CallDelta:
        rest = self._delta((self._held + self._text.flush()).removesuffix(grammar.TAIL), last=True)
        if self.name not in known:
            raise _broken("names no tool")
        try:
            json.loads(self._arguments)
        except (ValueError, RecursionError):
            raise _broken("has arguments that are no JSON") from None
        return rest

    def cut(self) -> list[CallDelta]:
        """The answer hit its limit inside the call: it is told as far as it came, and is not complete."""
        return [self._delta(self._held)] if self.name else []

    def _delta(self, arguments: str, last: bool = False) -> CallDelta:
        self._arguments += arguments
        return CallDelta(self.index, self.id, self.name, arguments, last)


@dataclass(frozen=True, slots=True)
class Calling:
    """What is offered to be called, and the guides through one call of it."""

    guides: Guides
    grammar: str = ""

    def start(self) -> Guide:
        return self.guides.start(self.grammar, "tools")


def _broken(what: str) -> StageFailed:
    return StageFailed("thinker", f"the model wrote a call that {what}", retryable=True)


def _offered(body: GenerateRequest) -> tuple[Tool, ...]:
    choice = body.tool_choice
    if choice.mode == "none":
        return ()
    if choice.mode == "required" and not body.tools:
        raise Refused("tool_choice is required, and there are no tools", param="tool_choice")
    if choice.mode == "function":
        named = tuple(tool for tool in body.tools if tool.name == choice.name)
        if not named:
            raise Refused(f"tool_choice names {choice.name!r}, which is not among the tools", param="tool_choice")
        return named
    return body.tools
