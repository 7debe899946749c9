"""Tokens to bytes and back, exactly. Text given by people never becomes a control token."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_SPM, _BPE = 1, 2  # enum llama_vocab_type
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@lru_cache(maxsize=1)
def _byte_of_letter() -> dict[str, int]:
    """The letters that byte-level BPE vocabularies write for bytes (Radford et al., GPT-2, 2019, encoder.py).

    Printable Latin-1 stands for itself; the other bytes follow from U+0100 on, in order.
    """
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(same)]
    return {chr(b): b for b in same} | {chr(0x100 + i): b for i, b in enumerate(others)}


class Vocabulary:
    """Wraps the model's own vocabulary (a cyllama LlamaVocab)."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.size: int = raw.n_vocab
        self._kind: int = raw.vocab_type
        self._bytes: dict[int, bytes] = {}
        self._control: dict[str, int | None] = {}

    def tokens(self, text: str) -> list[int]:
        """Plain text: what looks like a control token in it stays letters."""
        return list(self.raw.tokenize(text, False, False)) if text else []

    def template_tokens(self, text: str, bos: bool) -> list[int]:
        """Text of a template, whose control tokens count."""
        return list(self.raw.tokenize(text, bos, True))

    def control(self, text: str) -> int | None:
        """The id of a control token such as ``<|im_start|>``; None when this vocabulary has none."""
        if text not in self._control:
            ids = self.raw.tokenize(text, False, True)
            self._control[text] = ids[0] if len(ids) == 1 else None
        return self._control[text]

    def is_end(self, token: int) -> bool:
        return bool(self.raw.is_eog(token))

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for; none for a control token."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._read(token)
        return known

    def _read(self, token: int) -> bytes:
        if self.raw.is_control(token):
            return b""
        text: str = self.raw.get_text(token)
        if self._kind == _BPE:
            letters = _byte_of_letter()
            if all(c in letters for c in text):
                return bytes(letters[c] for c in text)
            return text.encode()
        if self._kind == _SPM:
            byte = _BYTE_TOKEN.fullmatch(text)
            return bytes([int(byte[1], 16)]) if byte else text.replace("\u2581", " ").encode()
        return str(self.raw.token_to_piece(token, 0, False)).encode()
