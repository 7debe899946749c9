"""Where a growing text may be cut into clauses to be spoken: a scanner without clock, thread or model.

The cuts are a function of the text alone: however it is split into pieces, the same clauses come out, because a cut is
only made once the text after it that could change it is there (or the text is over). ``flush`` is the one exception: it
gives up waiting, but still never cuts inside a word, a number, an address, or after an abbreviation.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from antiphon.pipelines.local.breaks import (
    BRACKET,
    LOOK,
    PHRASE,
    begins_phrase,
    bracket_end,
    ends_sentence,
    is_abbreviation,
    is_marked,
    may_part,
)
from antiphon.pipelines.local.speakable import CODE_BLOCK, NUMBER_MARK, Speakable, speakable

LONGEST = 120
"""Characters of a clause at normal speed: about 7 s of speech, one run of the talker's net in some 30 ms."""

_FIRST_COMMA, _FIRST_WORD, _FIRST_CAP = 10, 40, 72  # the first clause of a streamed text may end this early
_COMMA = 0.6  # of the longest: from here on a comma ends a clause
_WRAPPED = 50  # a line this long that does not end a sentence was wrapped, not ended
_SILENT = 1024  # silent characters passed over in one call
_WINDOW = 2048  # characters looked at; a long text waits in a backlog

_STOP = re.compile(r"[.!?…]+[\"'”’)\]*_~`]*")
_PAUSE = re.compile(r"[,;:][\"'”’)\]*_]*(?=\s)|[—](?=\S|\s)|\)(?=\s)(?! \d)| [–-] (?!\d)")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_MARKS = frozenset(".!?…,;:—–-)]\"'”’*_`")
_HALF_FENCE = re.compile(r"[ \t]{0,3}(`{0,2}|~{0,2})$")


@dataclass(frozen=True, slots=True)
class Cut:
    """A clause: ``[start, end)`` in the whole text and how it is said.

    ``line_end``: its line ends here too. ``paused``: a mark in the text ends it, not only a blank.
    """

    start: int
    end: int
    said: Speakable
    line_end: bool = False
    paused: bool = True


class ClauseScanner:
    """Push text, take clauses. Keeps only the text that has not been cut yet.

    ``longest``: characters of a clause. ``eager``: cut the very first clause early, so that the voice starts soon.
    """

    def __init__(self, longest: int = LONGEST, eager: bool = True) -> None:
        self.longest = max(24, longest)
        self.eager = eager
        self.over = False
        self._text = ""  # the window that is looked at; what does not fit in it yet waits in _backlog
        self._backlog: deque[str] = deque()
        self._taken = 0  # characters of _backlog[0] that are in the window
        self._at = 0
        self._line = 0  # characters of the current line before _text
        self._marked = False  # the current line began with a mark of its own (list, heading, table, quote)
        self._fence = ""
        self._waits = False

    def push(self, text: str) -> None:
        if text:
            self._backlog.append(text)
            self._refill()
        self._waits = False

    def finish(self) -> None:
        self.over = True
        self._waits = False

    @property
    def pending(self) -> int:
        """Characters that are not cut yet."""
        return len(self._text) + sum(map(len, self._backlog)) - self._taken

    @property
    def waiting(self) -> bool:
        """``next`` has nothing to give before more text is pushed."""
        return self._waits or not self._text

    def next(self) -> Cut | None:
        """The next clause, or None: more text is needed (``waiting``), or much silent text was passed over."""
        stop = self._at + _SILENT
        while self._at < stop and not self._waits and self._text:
            if cut := self._advance():
                return cut
        return None

    def flush(self, whole: bool = False) -> Cut | None:
        """What can be said of the waiting text without cutting a word, a number, an address or an abbreviation.

        ``whole``: all of it, for what comes next is not text.
        """
        if self._fence or not self._text.strip():
            return None
        end = len(self._text) if whole and len(self._text) <= self.longest else self._flushable()
        if end and (said := self._say(self._text[:end], False)):
            return self._take(end, said, False)
        return None

    def _advance(self) -> Cut | None:
        """One clause, or a stretch of silent text taken away, or nothing (and _waits set)."""
        if self._fence:
            self._skip_code()
            return None
        if blank := self._leading_blank():
            self._drop(blank)
            return None
        if self._line == 0:
            if fence := _FENCE.match(self._text):
                return self._open_fence(fence)
            if _HALF_FENCE.match(self._text) and not self._complete:
                self._waits = True
                return None
            if not self._complete and len(self._text) < LOOK and not self._text[:1].isalpha():
                self._waits = True  # a mark may still become one: "-", "- ", "1", "1.", "1. "
                return None
            self._marked = is_marked(self._text)
        found = self._find()
        if found is None:
            self._waits = True
            return None
        end, line_end = found
        said = self._say(self._text[:end], line_end)
        return self._take(end, said, line_end)

    def _leading_blank(self) -> int:
        """Blanks to pass over: all but the indentation of a line, which belongs to its mark."""
        blank = len(self._text) - len(self._text.lstrip())
        newline = self._text.rfind("\n", 0, blank)
        if newline >= 0:
            return newline + 1
        indents = self._line == 0 and blank < LOOK and (blank < len(self._text) or not self._complete)
        return 0 if indents else blank

    def _say(self, text: str, line_end: bool) -> Speakable | None:
        return speakable(text, self._at, line_start=self._line == 0, line_end=line_end)

    def _take(self, end: int, said: Speakable | None, line_end: bool) -> Cut | None:
        clause = self._text[:end]
        start = self._at + len(clause) - len(clause.lstrip())
        stop = self._at + len(clause.rstrip())
        self._drop(end)
        if said is None:
            return None
        self.eager = False
        return Cut(start, stop, said, line_end, clause.rstrip()[-1:] in _MARKS)

    def _drop(self, count: int) -> None:
        newline = self._text.rfind("\n", 0, count)
        self._line = self._line + count if newline < 0 else count - newline - 1
        if newline >= 0:
            self._marked = False
        self._text = self._text[count:]
        self._at += count
        self._refill()

    def _refill(self) -> None:
        while self._backlog and len(self._text) < _WINDOW:
            more = self._backlog[0][self._taken : self._taken + _WINDOW]
            self._text += more
            self._taken += len(more)
            if self._taken == len(self._backlog[0]):
                self._backlog.popleft()
                self._taken = 0

    @property
    def _complete(self) -> bool:
        """The window ends where the text ends."""
        return self.over and not self._backlog

    # -- code -----------------------------------------------------------------------------------------------------

    def _open_fence(self, fence: re.Match[str]) -> Cut | None:
        end = self._text.find("\n", fence.end())
        if end < 0 and not self._complete and len(self._text) < BRACKET:
            self._waits = True
            return None
        end = len(self._text) if end < 0 else end + 1
        start = self._at
        self._fence = fence.group(1)
        self._drop(end)
        self.eager = False
        return Cut(start, start + end, Speakable(CODE_BLOCK, (start + end,) * len(CODE_BLOCK.split())), True)

    def _skip_code(self) -> None:
        """Away with whole lines of code; a line that may close the block must be there whole."""
        newline = self._text.find("\n")
        if newline < 0 and not self._complete and len(self._text) < BRACKET:
            self._waits = True
            return
        end = len(self._text) if newline < 0 else newline + 1
        closes = self._line == 0 and self._text[:end].strip().startswith(self._fence)
        self._drop(end)
        if closes:
            self._fence = ""

    # -- cuts -----------------------------------------------------------------------------------------------------

    def _find(self) -> tuple[int, bool] | None:
        """The end of the clause that begins the text, and whether its line ends there; None = wait."""
        limit = min(self.longest, _FIRST_CAP) if self.eager else self.longest
        text = self._text[: limit + BRACKET + LOOK]
        whole = self._complete and len(text) == len(self._text)
        pauses = list[int]()
        mark = NUMBER_MARK.match(text) if self._line == 0 else None
        position = mark.end() if mark else 0
        kept: list[tuple[int, int]] = []  # links and pieces of code, which are not cut
        while position < min(len(text), limit):
            character = text[position]
            if character in "[`":
                closing = bracket_end(text, position, whole)
                if closing is None:
                    return None
                kept.append((position, closing))
                position = max(closing, position + 1)
                continue
            if character == "\n":
                kind = self._newline(text, position, whole)
                if kind is None:
                    return None
                if kind:
                    return position + 1, True
            elif character in ".!?…":
                stop = _STOP.match(text, position)
                assert stop is not None
                ends = ends_sentence(text, position, stop.end(), whole)
                if ends is None:
                    return None
                if ends:
                    return stop.end(), self._line_ends_at(text, stop.end())
                position = stop.end()
                continue
            elif pause := _PAUSE.match(text, position):
                if pause.end() >= len(text) - 1 and not whole:
                    return None
                if self.eager and len(text[:position].strip()) >= _FIRST_COMMA:
                    return pause.end(), False
                pauses.append(pause.end())
                if pause.end() >= limit * _COMMA and not self.eager:
                    return pause.end(), False
            elif character.isspace() and self.eager and position >= _FIRST_WORD:
                soft = begins_phrase(text, position, whole)
                if soft is None:
                    return None
                if soft:
                    return position, False
            position += 1
        if whole and len(text) <= limit:
            return len(text), True
        if kept:
            limit = max(limit, kept[-1][1])
        if len(text) < limit + LOOK and not whole:
            return None
        return self._forced(text, limit, pauses, kept), False

    def _line_ends_at(self, text: str, end: int) -> bool:
        rest = text[end : end + LOOK]
        return not rest or rest.lstrip(" \t")[:1] == "\n"

    def _forced(self, text: str, limit: int, pauses: list[int], kept: list[tuple[int, int]]) -> int:
        """A clause that is too long is cut at its last pause, phrase or blank, as the last resort inside a word."""
        least = limit // 4
        if pauses and pauses[-1] >= least:
            return pauses[-1]
        blanks = [match.start() for match in re.finditer(r"\s", text[: limit + 1]) if match.start() >= least]
        blanks = [place for place in blanks if not any(a < place < b for a, b in kept)]
        apart = [place for place in blanks if may_part(text, place)]
        phrases = [place for place in apart if PHRASE.match(text, place)]
        for places in (phrases, apart, blanks):
            if places:
                return places[-1]
        if longer := re.compile(r"\s").search(text, limit, limit + LOOK):
            return longer.start()
        return limit

    def _newline(self, text: str, position: int, whole: bool) -> bool | None:
        """Does the line really end here, or was it only wrapped? None: cannot be told yet."""
        rest = text[position + 1 :]
        following = rest.lstrip(" \t")
        if following.startswith("\n") or (whole and not following):
            return True
        if len(rest) < LOOK and "\n" not in following and not whole:
            return None
        if is_marked(rest) or _FENCE.match(rest):
            return True
        start = text.rfind("\n", 0, position) + 1
        length = position - start + (self._line if start == 0 else 0)
        if self._marked and start == 0 and length < _WRAPPED:
            return True
        return length < _WRAPPED

    def _flushable(self) -> int:
        text = self._text[: self.longest]
        if self._line == 0 and (_HALF_FENCE.match(text) or _FENCE.match(text)):
            return 0
        opened = max(text.rfind("["), text.rfind("`") if text.count("`") % 2 else -1)
        if opened >= 0 and bracket_end(text, opened, False) is None:
            text = text[:opened]
        if re.search(r"[^\W\d_]{2,}[!?]+[\"'”’)]*$", text) or (
            re.search(r"(?:^|\s)[^\W\d_]{2,}\.[\"'”’)]*$", text) and not is_abbreviation(text, text.rfind("."))
        ):
            return len(text)
        for blank in sorted((m.start() for m in re.finditer(r"\s+", text)), reverse=True):
            if may_part(text, blank) and text[:blank].strip():
                return blank
        return 0
