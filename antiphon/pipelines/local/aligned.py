"""Text that is rewritten step by step while every character remembers where in the source it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Piece = str | int
"""A part of a replacement: new text (it stands for the whole match), or the number of a group that stays as it is."""
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
            for piece in pieces if isinstance(pieces, tuple) else (pieces,):
                if isinstance(piece, int):
                    keep(*match.span(piece))
                elif piece:
                    here = match.start()
                    first = self.starts[here] if here < len(self.starts) else self.ends[-1]
                    last = self.ends[match.end() - 1] if match.end() > here else first
                    text.append(piece)
                    starts.extend([first] * len(piece))
                    ends.extend([last] * len(piece))
        keep(done, len(self.text))
        return Aligned("".join(text), tuple(starts), tuple(ends))

    def words(self) -> Iterator[tuple[str, int]]:
        """Each whitespace-separated word with the source offset at which it has been said."""
        for match in re.finditer(r"\S+", self.text):
            yield match.group(), max(self.ends[match.start() : match.end()])
