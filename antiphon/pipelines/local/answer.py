"""One answer of the Thinker, written as a dialogue with the sampler: ``token = yield sampler``.

A flow decides what to sample with, what the tokens mean and what to say; the stage only decodes. While a flow has pushed
nothing, its next sampler is asked about the same position.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from typing import Any, Literal

from antiphon.pipelines.engines.llama_cpp import grammar
from antiphon.pipelines.engines.llama_cpp.engine import Engine, Run
from antiphon.pipelines.engines.llama_cpp.sampling import SamplerSpec
from antiphon.pipelines.engines.llama_cpp.text_stream import TextStream
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local import prompts
from antiphon.pipelines.local.prompts import Control
from antiphon.pipelines.local.rendering import Renderer
from antiphon.pipelines.outputs import CallDelta, TextDelta
from antiphon.pipelines.requests import GenerateRequest, Tool

Flow = Generator[Any, int, None]
FinishReason = Literal["stop", "length", "tool_calls"]
MAX_CALLS = 8
DEFAULT_MAX_TOKENS = 512
REPETITION_PENALTY = 1.15
"""At 1.1 two of seven long answers ran in circles, at 1.15 none; ``benchmarks.answers`` scored both the same."""
NO_ARGUMENTS = {"type": "object", "properties": {}}
"""What a tool takes that says nothing of it."""


class Answer:
    """``say`` collects what the next step may emit. ``made``: tokens sampled; ``cached``/``prompt``: of the first prompt."""

    def __init__(self, engine: Engine, renderer: Renderer, body: GenerateRequest, *, spoken: bool, conversation: str) -> None:
        self.engine = engine
        self.renderer = renderer
        self.body = body
        self.say: list[TextDelta | CallDelta] = []
        self.made = 0
        self.text = ""
        self.finish: FinishReason = "stop"
        self.prompt = 0
        self.cached = 0
        self._spoken = spoken
        self._conversation = conversation
        self._asked = body.thinking
        self.limit = self._asked.max_tokens if self._asked.max_tokens is not None else DEFAULT_MAX_TOKENS
        self._min_p = checked_min_p(body)
        tools = self._offered()
        self._names = {t.name: t for t in tools}
        self._grammars = {t.name: grammar.from_schema(t.parameters or NO_ARGUMENTS, "tools") for t in tools}
        forced = body.tool_choice.mode in ("required", "function")
        self._format = self._format_grammar()
        self.run = self._begin(tools)
        if forced:
            self.flow = self._forced(tools)
        elif tools:
            self.flow = self._decide()
        else:
            self.flow = self._speak()
        self.wanted: Any = next(self.flow, None)
        """The sampler that the next token is to come from; None when the answer is over."""

    def took(self, token: int) -> None:
        try:
            self.wanted = self.flow.send(token)
        except StopIteration:
            self.wanted = None

    # -- the request
    def _offered(self) -> tuple[Tool, ...]:
        choice, tools = self.body.tool_choice, self.body.tools
        if choice.mode == "none":
            return ()
        return tuple(t for t in tools if t.name == choice.name) if choice.mode == "function" else tools

    def _format_grammar(self) -> str:
        wanted = self.body.response_format
        if wanted.kind == "json_object":
            return grammar.json_object()
        return grammar.from_schema(wanted.schema) if wanted.kind == "json_schema" else ""

    def _spec(self, rules: str = "") -> SamplerSpec:
        """What the request asks for. The repetition penalty is ours for free text only: JSON repeats itself by nature."""
        asked = self._asked
        penalty = asked.repetition_penalty
        return SamplerSpec(
            temperature=asked.temperature or 0.0,
            top_p=asked.top_p if asked.top_p is not None else 1.0,
            top_k=asked.top_k or 0,
            min_p=self._min_p,
            seed=asked.seed,
            repetition_penalty=penalty if penalty is not None else (1.0 if rules else REPETITION_PENALTY),
            grammar=rules,
        )

    def _begin(self, tools: Sequence[Tool]) -> Run:
        """The prompt with or without tools; each kind has a sequence of its own, so that both prefixes stay cached."""
        script = prompts.script(self.body, spoken=self._spoken, tools=tools)
        reserve = min(self.limit, self.engine.context // 4)
        tokens = self.renderer.fit(script, self.engine.context - reserve - 1, answer=True)
        if tools:
            tokens += self.renderer.pieces((Control(prompts.CALL_BEGIN), prompts.NAME_BEGIN))
        run = self.engine.begin(tokens, tool_cache(self._conversation) if tools else self._conversation)
        self.prompt, self.cached = self.prompt or len(tokens), self.cached or run.cached
        return run

    # -- the flows
    def _push(self, tokens: Sequence[int]) -> bool:
        """False when the token limit or the context is reached."""
        if self.made >= self.limit or self.engine.room(self.run) < len(tokens):
            self.finish = "length"
            return False
        self.engine.push(self.run, tokens)
        return True

    def _speak(self) -> Flow:
        """Text until its end, a stop string or a limit. Leading blanks are not said."""
        stream = TextStream(self._asked.stop)
        sampler = self.engine.sampler(self._spec(self._format))
        since = 0
        if self.limit <= 0:
            self.finish = "length"
            return
        while True:
            token = yield sampler
            if self.engine.vocabulary.is_end(token):
                break
            self.made += 1
            since += 1
            text = stream.push(self.engine.vocabulary.bytes_of(token))
            text = text if self.text else text.lstrip()
            if text:
                self._say_text(text, since)
                since = 0
            if stream.stopped or not self._push([token]):
                break
        if rest := stream.finish():
            self._say_text(rest, since)

    def _say_text(self, text: str, tokens: int) -> None:
        self.text += text
        self.say.append(TextDelta(text, tokens))

    def _expect(self, texts: Sequence[str]) -> Generator[Any, int, str]:
        """Sample freely while what comes may become one of ``texts``; the one that it became, or ""."""
        sampler = self.engine.sampler(SamplerSpec())
        got = b""
        wanted = [t.encode() for t in texts]
        while True:
            token = yield sampler
            if self.engine.vocabulary.is_end(token):
                return ""
            self.made += 1
            got += self.engine.vocabulary.bytes_of(token)
            for text in wanted:
                if got.startswith(text):
                    return text.decode()
            if not any(t.startswith(got) for t in wanted):
                return ""
            self.engine.push(self.run, [token])

    def _decide(self) -> Flow:
        """tool_choice auto: the model is shown the beginning of a call. The name of a tool is a call; any other name that
        it makes up means that none fits, and the question is answered without tools.

        A tool that was already called since the user spoke is not called again by itself.
        """
        since_user = self._called_since_user()
        names = [n for n in self._names if n not in since_user]
        base = list(self.run.prompt)
        chosen = (yield from self._expect([f'{n}"' for n in names])) if names else ""
        if not chosen:
            self.made = 0
            self.engine.end(self.run)
            self.run = self._begin(())
            yield from self._speak()
            return
        yield from self._calls(base, chosen[:-1], names)

    def _called_since_user(self) -> set[str]:
        called: set[str] = set()
        for message in self.body.messages:
            if message.role == "user":
                called.clear()
            called.update(c.name for c in message.calls)
        return called

    def _forced(self, tools: Sequence[Tool]) -> Flow:
        base = list(self.run.prompt)
        name = tools[0].name
        if len(tools) > 1:
            sampler = self.engine.sampler(SamplerSpec(grammar=grammar.choice([t.name for t in tools])))
            got = b""
            while not self.engine.vocabulary.is_end(token := (yield sampler)):
                self.made += 1
                got += self.engine.vocabulary.bytes_of(token)
                self.engine.push(self.run, [token])
            name = got.decode()
        yield from self._calls(base, name, [t.name for t in tools])

    def _calls(self, base: list[int], name: str, names: Sequence[str]) -> Flow:
        """This call, then as many as the model makes (one when parallel calls are off)."""
        vocabulary = self.engine.vocabulary
        seen: set[tuple[str, str]] = set()
        for index in range(MAX_CALLS):
            base = base + vocabulary.tokens(name + prompts.ARGUMENTS_BEGIN)
            self.engine.rewind(self.run, base)
            arguments = yield from self._arguments(index, name)
            seen.add((name, arguments))
            if self.finish == "length" or not self.body.parallel_tool_calls or index + 1 == MAX_CALLS:
                break
            base = base + vocabulary.tokens(arguments + prompts.AFTER_ARGUMENTS)
            base += self.renderer.pieces((Control(prompts.CALL_END),))
            self.engine.rewind(self.run, base)
            if not (yield from self._expect([prompts.NEXT_CALL])):
                break
            base += self.renderer.pieces(("\n", Control(prompts.CALL_BEGIN), prompts.NAME_BEGIN))
            self.engine.rewind(self.run, base)
            chosen = yield from self._expect([f'{n}"' for n in names])
            if not chosen or chosen[:-1] in {n for n, _ in seen}:
                break  # a small model repeats itself: the same tool twice in an answer is taken for that
            name = chosen[:-1]
        if self.finish != "length":
            self.finish = "tool_calls"

    def _arguments(self, index: int, name: str) -> Generator[Any, int, str]:
        stream = TextStream()
        sampler = self.engine.sampler(self._spec(self._grammars[name]))
        call_id = f"call_{secrets.token_hex(12)}"
        made = ""
        while True:
            token = yield sampler
            if self.engine.vocabulary.is_end(token):
                break
            self.made += 1
            piece = stream.push(self.engine.vocabulary.bytes_of(token))
            made += piece
            self.say.append(CallDelta(index, call_id, name, piece, tokens=1))
            if not self._push([token]):
                break
        if self.finish != "length":
            self.say.append(CallDelta(index, call_id, name, "", last=True))
        return made


def checked_min_p(body: GenerateRequest) -> float:
    """The Thinker's own parameter in ``stage_params``. Raises Refused naming what it does not know or cannot use."""
    own = body.stage_params.get("thinker", {})
    if unknown := sorted(set(own) - {"min_p"}):
        raise Refused(f"stage_params.thinker knows no {unknown[0]!r}; it knows: min_p", param="stage_params")
    min_p = own.get("min_p", 0.0)
    if not isinstance(min_p, int | float) or not 0.0 <= min_p <= 1.0:
        raise Refused("stage_params.thinker.min_p must be a number from 0 to 1", param="stage_params")
    asked = body.thinking
    bounds = (("temperature", 0.0, 5.0), ("top_p", 0.0, 1.0), ("repetition_penalty", 0.1, 10.0), ("top_k", 0, 1_000_000))
    for name, low, high in bounds:
        value = getattr(asked, name)
        if value is not None and not low <= value <= high:
            raise Refused(f"{name} must be a number from {low:g} to {high:g}", param=name)
    return float(min_p)


def tool_cache(conversation: str) -> str:
    """Under which name the prompt with tools is cached."""
    return f"{conversation}\0tools" if conversation else ""
