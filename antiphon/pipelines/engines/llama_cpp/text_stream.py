"""Bytes of tokens -> text that may be said: whole characters only, nothing from a stop string on."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from antiphon.pipelines.stop_strings import first_stop, unfinished


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
        at = first_stop(self._held, self._stop)
        if at is not None:
            self.stopped = True
            said, self._held = self._held[:at], ""
            return said
        cut = len(self._held) - unfinished(self._held, self._stop)
        said, self._held = self._held[:cut], self._held[cut:]
        return said

    def finish(self) -> str:
        """The answer ended without a stop string: what was held is text; half a character is not."""
        said, self._held = ("" if self.stopped else self._held), ""
        return said
