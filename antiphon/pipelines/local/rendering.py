"""Turns -> tokens: the model's chat template, and what is dropped when a conversation outgrows the context."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from antiphon.pipelines.engines.llama_cpp.engine import Engine
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.prompts import Control, Script, Turn

DROP_TURNS = 4
"""The oldest turns go several at once, so that the cached prefix survives the next few turns."""

_START, _END = "<|im_start|>", "<|im_end|>"


class Renderer:
    """ChatML (SmolLM2, Qwen and many others) is built from control tokens here; other templates by llama.cpp's own list."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        vocabulary = engine.vocabulary
        self._start, self._end = vocabulary.control(_START), vocabulary.control(_END)
        self._chatml = self._start is not None and self._end is not None and (_START in engine.template or not engine.template)
        self._cached = lru_cache(maxsize=2048)(self._chatml_turn)

    def pieces(self, pieces: Sequence[str | Control]) -> list[int]:
        """Text with its control tokens."""
        tokens: list[int] = []
        for piece in pieces:
            if isinstance(piece, Control):
                known = self._engine.vocabulary.control(piece.text)
                tokens += [known] if known is not None else self._engine.vocabulary.tokens(piece.text)
            else:
                tokens += self._engine.vocabulary.tokens(piece)
        return tokens

    def tokens(self, turns: Sequence[Turn], *, answer: bool, asking: bool = False) -> list[int]:
        """``answer`` opens the assistant's turn; ``asking`` the user's (for what can be prepared before he has spoken)."""
        if not self._chatml:
            return self._foreign(turns, answer)
        tokens = [t for turn in turns for t in self._cached(turn)]
        if answer or asking:
            tokens += self._open("assistant" if answer else "user")
        return tokens

    def fit(self, script: Script, room: int, *, answer: bool, asking: bool = False) -> list[int]:
        """The script in at most ``room`` tokens: the oldest turns are dropped, the head and the last turn never.

        Raises Refused (``context_length_exceeded``) when those alone are too long.
        """
        dropped = 0
        while True:
            tokens = self.tokens(script.head + script.turns[dropped:], answer=answer, asking=asking)
            if len(tokens) <= room:
                return tokens
            if dropped >= len(script.turns) - 1:
                raise Refused(
                    "this model's maximum context length is exceeded: "  # as clients find it who cut and try again
                    f"the instructions and the last message take {len(tokens)} tokens; {room} fit",
                    code="context_length_exceeded",
                    param="messages",
                )
            dropped = self._next_cut(script.turns, dropped)

    @staticmethod
    def _next_cut(turns: Sequence[Turn], dropped: int) -> int:
        """Where the kept turns may begin: at a user's own words when there are any left, never past the last turn."""
        cut = min(dropped + DROP_TURNS, len(turns) - 1)
        for i in range(cut, len(turns)):
            if turns[i].role == "user" and not str(turns[i].pieces[0]).startswith("<tool_response>"):
                return i
        return cut

    def _open(self, role: str) -> list[int]:
        assert self._start is not None
        return [self._start, *self._engine.vocabulary.tokens(f"{role}\n")]

    def _chatml_turn(self, turn: Turn) -> tuple[int, ...]:
        assert self._start is not None and self._end is not None
        first = turn.pieces[0] if turn.pieces else ""
        lead = f"{turn.role}\n" + (first if isinstance(first, str) else "")
        rest = turn.pieces[1:] if isinstance(first, str) else turn.pieces
        vocabulary = self._engine.vocabulary
        return (self._start, *vocabulary.tokens(lead), *self.pieces(rest), self._end, *vocabulary.tokens("\n"))

    def _foreign(self, turns: Sequence[Turn], answer: bool) -> list[int]:
        """Control tokens in people's text are taken apart by a zero-width space: this template is text until the end."""
        chat = []
        for turn in turns:
            text = "".join(p.text if isinstance(p, Control) else p.replace("<|", "<\u200b|") for p in turn.pieces)
            chat.append((turn.role, text))
        rendered = self._engine.apply_template(chat, answer)
        return self._engine.vocabulary.template_tokens(rendered, bos=True)
