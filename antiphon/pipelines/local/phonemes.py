"""English text -> the net's phoneme ids, and where in them each word of the text ends.

hibari's normaliser and grapheme-to-phoneme rules do the reading (hibari-tts 0.2.1, after misaki); here every word keeps
its place: what the normaliser expands ("10:30" -> "ten thirty") stays with the word it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

MAX_IDS = 220
"""Phonemes in one run of the net at normal speed: some 12 s of speech in some 50 ms; more are read in several runs."""

_SILENT = frozenset(' ;:,.!?—…"“”()')


@dataclass(frozen=True, slots=True)
class Phonemes:
    """One run of the net. ``ids`` begin and end with the pad 0. ``words``: (index of a word's last id, its text offset)."""

    ids: tuple[int, ...]
    words: tuple[tuple[int, int], ...]


class Reader:
    """Reads a clause. ``g2p`` is ``hibari.g2p.G2P``, ``vocab`` its phoneme -> id table."""

    def __init__(self, g2p: Any, vocab: dict[str, int]) -> None:
        from hibari.g2p.normalize import normalize

        self._g2p, self._vocab, self._normalize = g2p, vocab, normalize

    def read(self, text: str, word_ends: Sequence[int], most: int = MAX_IDS) -> list[Phonemes]:
        """``word_ends``: the offset that is reached when each whitespace-separated word of ``text`` has been said.

        ``most``: phonemes in one run. Text with no sound that the voice knows gives no run.
        """
        normalised = self._normalize(text)
        if not normalised:
            return []
        completes = align(text.split(), normalised.split(" "))
        spelled = self._spell(normalised)
        runs, ids, words, sounds = [], list[int](), list[tuple[int, int]](), False
        for number, phonemes in enumerate(spelled):
            known = [(character, self._vocab[character]) for character in phonemes if character in self._vocab]
            if len(ids) + len(known) > most and words:
                if sounds:
                    runs.append(Phonemes((0, *ids, 0), tuple(words)))
                ids, words, sounds = [], [], False
            if ids and known and " " in self._vocab:
                ids.append(self._vocab[" "])
            base = 1 + len(ids)  # the pad comes first
            ids.extend(code for _, code in known)
            voiced = [index for index, (character, _) in enumerate(known) if character not in _SILENT]
            sounds = sounds or bool(voiced)
            done = completes[number] if number < len(completes) else None
            if done is not None and done < len(word_ends):
                last = base + voiced[-1] if voiced else (words[-1][0] if words else 0)
                words.append((last, word_ends[done]))
        if sounds:
            runs.append(Phonemes((0, *ids, 0), tuple(words)))
        return runs

    def _spell(self, normalised: str) -> Iterator[str]:
        """The phonemes of each blank-separated word."""
        word: list[str] = []
        for token in self._g2p.phonemize_tokens(self._g2p.tokenize(normalised)):
            word.append(self._g2p.unk if token.phonemes is None else token.phonemes)
            if token.whitespace:
                yield "".join(word)
                word = []
        yield "".join(word)


def align(words: Sequence[str], rewritten: Sequence[str]) -> list[int | None]:
    """For each rewritten word the index of the word that has been said with it, or None inside an expansion."""
    completes: list[int | None] = [None] * len(rewritten)
    before, after = [_letters(word) for word in words], [_letters(word) for word in rewritten]
    for _, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if b - a == d - c:
            completes[c:d] = range(a, b)
        elif b > a:  # rewritten as more or fewer words: all are said with the last of them
            last = d - 1 if d > c else c - 1
            if last >= 0:
                completes[last] = b - 1
    return completes


def _letters(word: str) -> str:
    """What two spellings of a word have in common ("Dr." and "Dr")."""
    return "".join(character for character in word if character.isalnum()).lower() or word
