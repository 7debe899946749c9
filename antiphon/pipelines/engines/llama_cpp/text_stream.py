"""Bytes of tokens -> text that may be said: whole characters only, nothing from a stop string on."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """``push`` returns what is now certain. Holds back bytes of an unfinished character and what may begin a stop string."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.stopped = False
        self._stop = tuple(s for s in stop if s)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, data: bytes) -> str:
        if self.stopped:
            return ""
        self._held += self._decoder.decode(data)
        hits = [i for i in (self._held.find(s) for s in self._stop) if i >= 0]
        if hits:
            self.stopped = True
            said, self._held = self._held[: min(hits)], ""
            return said
        keep = max((self._overlap(s) for s in self._stop), default=0)
        cut = len(self._held) - keep
        said, self._held = self._held[:cut], self._held[cut:]
        return said

    def finish(self) -> str:
        """The answer ended without a stop string: what was held is text; half a character is not."""
        said, self._held = ("" if self.stopped else self._held), ""
        return said

    def _overlap(self, stop: str) -> int:
        """How long an end of what is held is also a beginning of ``stop``."""
        for n in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:n]):
                return n
        return 0
