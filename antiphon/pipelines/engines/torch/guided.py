"""Answers that keep to a grammar: which tokens may come next. The work is llguidance's (Earley parser over the vocabulary)."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from antiphon.pipelines.errors import ConfigError, Refused


class Guides:
    """Makes guides for one tokenizer. ``ends``: the ids that end an answer; ``vocabulary``: scores of the model's head."""

    def __init__(self, tokenizer: Any, ends: Collection[int], vocabulary: int) -> None:
        self._hf = tokenizer
        self._ends = sorted(ends)
        self._vocabulary = vocabulary
        self._tokenizer: Any = None
        self._building = threading.Lock()

    def warm_up(self) -> None:
        """Read the vocabulary (about a second for 150,000 tokens), so that no request waits for it. Without the package
        nothing is done: the requests that need it are refused."""
        try:
            self._read()
        except ConfigError:
            return

    def start(self, grammar: str, param: str) -> Guide:
        """A guide at the beginning of ``grammar`` (llguidance's dialect of Lark). Raises Refused naming ``param`` for one
        that cannot be kept, or where the package is missing."""
        try:
            matcher = self._read()(grammar)
        except ConfigError as error:
            raise Refused(str(error), code="unsupported_value", param=param) from error
        if matcher.is_error():
            raise Refused(f"{param}: {_reason(matcher.get_error())}", code="invalid_schema", param=param)
        return Guide(matcher, self._vocabulary, param)

    def _read(self) -> Any:
        try:
            import llguidance
        except ImportError as error:
            raise ConfigError("answers by a schema need llguidance: pip install 'antiphon[omni]'") from error
        with self._building:
            if self._tokenizer is None:
                self._tokenizer = llguidance.LLTokenizer(_letters_only(self._hf), eos_token=self._ends)
        return lambda grammar: llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)


class Unguided(Guides):
    """For what somebody else writes: a grammar that cannot be kept is refused here too, keeping to it is the writer's."""

    def start(self, grammar: str, param: str) -> Guide:
        super().start(grammar, param)
        return Anything()


class Guide:
    """One answer's place in its grammar. Both methods raise Refused naming ``param`` when the grammar turns out to be more than
    the parser's bounds allow, which shows only where it is used."""

    def __init__(self, matcher: Any, vocabulary: int, param: str) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._param = param

    def allowed(self) -> torch.Tensor:
        """bool [vocabulary]: what may come next."""
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        mask = np.zeros(self._vocabulary, bool)  # a head is padded beyond its tokenizer: nothing there may be said
        mask[: len(bits)] = bits[: self._vocabulary]
        if self._matcher.is_error() or not mask.any():
            raise self._refused("nothing can follow")
        return torch.from_numpy(mask)

    def take(self, token: int) -> None:
        """This one was chosen, of those that are allowed."""
        if not self._matcher.consume_token(token):
            raise self._refused("it cannot be followed any further")

    def _refused(self, what: str) -> Refused:
        reason = _reason(self._matcher.get_error())
        return Refused(f"{self._param}: {what}: {reason}", code="invalid_schema", param=self._param)


class Anything(Guide):
    """Takes whatever was written."""

    def __init__(self) -> None: ...

    def take(self, token: int) -> None: ...


def _letters_only(tokenizer: Any) -> str:
    """The tokenizer's JSON with every added token under a name that no JSON holds.

    Where a grammar leaves one way to go on, llguidance reads the letters to come as the tokenizer would: those of a control
    token in a schema (a key "<|im_end|>") as that token, which ends the answer or which its own parser then refuses.
    """
    held = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in held["added_tokens"]:
        token |= {"content": f"\0{token['id']}", "special": True}
    return json.dumps({**held, "padding": None, "truncation": None})


def _reason(error: str) -> str:
    """The first line of llguidance's report, without where in our own grammar it was; of its parser, nothing of its insides."""
    first = error.strip().splitlines()[0] if error.strip() else "it is too large"
    if first.startswith("Parser Error"):
        return "what has been said cannot be gone on with"
    return first.partition("): ")[2] or first
