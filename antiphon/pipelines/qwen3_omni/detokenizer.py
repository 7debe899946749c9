"""Text from tokens as they come: whole characters only, special tokens silent."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from antiphon.pipelines.errors import WeightError


@lru_cache(maxsize=4)
def read_tokenizer(folder: str) -> Any:
    """The folder's tokenizer with its chat template, read once per process. Raises WeightError when either is missing."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise WeightError(f"{folder!r} holds no readable tokenizer") from error
    if len(tokenizer.get_vocab()) <= len(tokenizer.get_added_vocab()):  # made of its settings alone, without its words
        raise WeightError(f"{folder!r} holds no tokenizer's vocabulary")
    if tokenizer.chat_template is None:
        # Checkpoints of this family keep it beside the tokenizer, for their processor.
        path = Path(folder) / "chat_template.json"
        try:
            tokenizer.chat_template = str(json.loads(path.read_text())["chat_template"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WeightError(f"{folder!r} holds no chat template") from error
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise WeightError(f"{folder!r} holds a chat template that writes no user's turn: {error}") from error
    return tokenizer


class Detokenizer:
    """One answer's text. A token may end inside a character: its text waits for the rest, or for ``flush``."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []
        self._told = 0

    def add(self, token: int) -> str:
        """The text that this token completed; "" while it is inside a character."""
        self._held.append(token)
        text = self._decode(self._held)
        if text.endswith("\ufffd"):
            return ""
        new = text[self._told :]
        # Keep one token of context: what a token means may depend on the one before it, never on more in this BPE.
        self._held = self._held[-1:]
        self._told = len(self._decode(self._held))
        return new

    def flush(self) -> str:
        """What is left, its broken characters as U+FFFD."""
        text = self._decode(self._held)[self._told :]
        self._held, self._told = [], 0
        return text

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text
