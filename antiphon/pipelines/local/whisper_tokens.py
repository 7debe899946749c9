"""Whisper's vocabulary: the prompt that starts a reading, times among the text, words out of tokens.

Radford et al., 2022, section 2.3 (the task as tokens), and openai/whisper tokenizer.py (splitting into words).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.pipelines.errors import Refused

STEP_S: Final = 0.02
"""What one timestamp token stands for."""
MAX_PROMPT: Final = 223
"""Tokens of context that fit before a reading: half of the decoder's 448, less its own mark."""
SPACELESS: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_BEFORE: Final = "\"'“¿([{-"
_AFTER: Final = "\"'.。,，!！?？:：”)]}、"


class Vocabulary:
    """Reads ``tokenizer.json`` of a multilingual Whisper."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        names = self._tokenizer.get_vocab(with_added_tokens=True)
        self.end: int = names["<|endoftext|>"]
        self._start: int = names["<|startoftranscript|>"]
        self._previous: int = names["<|startofprev|>"]
        self._transcribe: int = names["<|transcribe|>"]
        self._translate: int = names["<|translate|>"]
        self.first_time: int = names["<|notimestamps|>"] + 1
        between = range(self._start + 1, self._translate)
        self._languages: dict[str, int] = {name[2:-2]: i for name, i in names.items() if i in between}

    @property
    def languages(self) -> frozenset[str]:
        """ISO 639 codes the model knows."""
        return frozenset(self._languages)

    def start(self, language: str, *, translate: bool = False) -> list[int]:
        """The sequence that begins a reading. Raises Refused for a language the model does not know."""
        if language not in self._languages:
            raise Refused(
                f"the transcriber does not know the language {language!r}; it takes ISO 639-1 codes such as 'en' or 'de'",
                code="unsupported_language",
                param="language",
            )
        return [self._start, self._languages[language], self._translate if translate else self._transcribe]

    def bias(self, prompt: str, keywords: Sequence[str], language: str) -> list[int]:
        """Context that precedes a reading: the keywords, then the prompt, whose end matters most.

        Empty without either; the oldest tokens are dropped where it is too long. Of seven ways to say keywords the
        sentence below biased best (12 of 12 synthetic utterances; a bare list 9, a list said twice 11).
        """
        named = [word.strip() for word in keywords if word.strip()]
        said = ""
        if named and language == "en":
            said = f"A call with {', '.join(named[:-1])}{' and ' * (len(named) > 1)}{named[-1]}."
        elif named:
            said = f"{', '.join(named)}, {', '.join(named)}."
        text = " ".join(part for part in (said, prompt.strip()) if part)
        if not text:
            return []
        ids: list[int] = self._tokenizer.encode(" " + text, add_special_tokens=False).ids
        return [self._previous, *[i for i in ids if i < self.end][-MAX_PROMPT:]]

    def text(self, ids: Sequence[int]) -> str:
        """The words among these tokens, times and marks left out; the leading space is kept."""
        return str(self._tokenizer.decode([i for i in ids if i < self.end], skip_special_tokens=False))

    def seconds(self, token: int) -> float | None:
        """The time that a token stands for; None for text."""
        return (token - self.first_time) * STEP_S if token >= self.first_time else None

    def words(self, ids: Sequence[int], language: str) -> list[tuple[str, int]]:
        """Text tokens as words, each with how many tokens it takes; punctuation goes with its word."""
        pieces = self._characters(ids)
        words: list[tuple[str, int]] = []
        for text, count in pieces:
            begins = language in SPACELESS or text.startswith(" ") or not words
            if begins:
                words.append((text, count))
            else:
                words[-1] = (words[-1][0] + text, words[-1][1] + count)
        return _with_punctuation(words)

    def _characters(self, ids: Sequence[int]) -> list[tuple[str, int]]:
        """Runs of tokens that are whole characters (a token may hold a part of one)."""
        pieces: list[tuple[str, int]] = []
        held: list[int] = []
        for token in ids:
            held.append(token)
            text = self.text(held)
            if "\ufffd" not in text:
                pieces.append((text, len(held)))
                held = []
        if held:
            pieces.append((self.text(held), len(held)))
        return pieces


def _with_punctuation(words: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Marks that stand alone joined to the word they belong to."""
    joined: list[tuple[str, int]] = []
    opening: tuple[str, int] | None = None
    for text, count in words:
        if opening is not None:
            text, count, opening = opening[0] + text, opening[1] + count, None
        bare = text.strip()
        if bare and all(c in _BEFORE for c in bare) and text.startswith(" "):
            opening = (text, count)
        elif bare and all(c in _AFTER for c in bare) and joined:
            joined[-1] = (joined[-1][0] + text, joined[-1][1] + count)
        else:
            joined.append((text, count))
    if opening is not None:
        joined.append(opening)
    return joined
