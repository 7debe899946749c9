"""Text that is rewritten step by step while every character remembers where in the source it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Piece = str | int
"""A part of a replacement: the number of a group that stays as it is, or new text.

New text stands for what of the match lies between the groups around it that stay.
"""
Rewrite = Callable[[re.Match[str]], tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class Aligned:
    """``text[i]`` stands for the source's characters ``[starts[i], ends[i])``."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, source: str, at: int) -> Aligned:
        """The source as it is, its first character at offset ``at``."""
        count = len(source)
        return cls(source, tuple(range(at, at + count)), tuple(range(at + 1, at + count + 1)))

    def sub(self, pattern: re.Pattern[str], rewrite: Rewrite | Piece | tuple[Piece, ...]) -> Aligned:
        """Every match replaced, as ``re.sub`` would; what stays keeps its place in the source."""
        if not pattern.search(self.text):
            return self
        text: list[str] = []
        starts: list[int] = []
        ends: list[int] = []

        def keep(a: int, b: int) -> None:
            text.append(self.text[a:b])
            starts.extend(self.starts[a:b])
            ends.extend(self.ends[a:b])

        done = 0
        for match in pattern.finditer(self.text):
            keep(done, match.start())
            done = match.end()
            pieces = rewrite(match) if callable(rewrite) else rewrite
            pieces = pieces if isinstance(pieces, tuple) else (pieces,)
            here = match.start()
            for number, piece in enumerate(pieces):
                if isinstance(piece, int):
                    keep(*match.span(piece))
                    here = match.end(piece)
                elif piece:
                    kept = (match.start(later) for later in pieces[number + 1 :] if isinstance(later, int))
                    until = max(here, next(kept, match.end()))
                    before = self.ends[here - 1] if here else self.starts[0]
                    first, last = (self.starts[here], self.ends[until - 1]) if until > here else (before, before)
                    text.append(piece)
                    starts.extend([first] * len(piece))
                    ends.extend([last] * len(piece))
        keep(done, len(self.text))
        return Aligned("".join(text), tuple(starts), tuple(ends))

    def words(self) -> Iterator[tuple[str, int]]:
        """Each whitespace-separated word with the source offset at which it has been said."""
        for match in re.finditer(r"\S+", self.text):
            yield match.group(), max(self.ends[match.start() : match.end()])
