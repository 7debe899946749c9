"""Stop strings over tokens: what may still become one is held back, so none of it is ever shown or spoken."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer
from antiphon.pipelines.stop_strings import first_stop, unfinished


class StopScan:
    """``push`` returns the tokens that are safe to send, and, at a hit, the text to show of the token it broke."""

    def __init__(self, stops: Sequence[str], detokenizer: Detokenizer | None) -> None:
        self._stops = tuple(s for s in stops if s)
        self._detokenizer = detokenizer
        self._held: list[tuple[int, str]] = []
        self.hit: str | None = None

    def push(self, token: int) -> list[int]:
        """After a hit (``hit`` is then the text between the last safe token and the stop) push no more."""
        if not self._stops or self._detokenizer is None:
            return [token]
        self._held.append((token, self._detokenizer.add(token)))
        text = "".join(piece for _, piece in self._held)
        at = first_stop(text, self._stops)
        if at is not None:
            safe = self._release(len(text) - at)
            kept = sum(len(piece) for _, piece in self._held)
            self.hit = text[len(text) - kept : at]
            return safe
        return self._release(unfinished(text, self._stops))

    def flush(self) -> list[int]:
        """The answer ends: what was held is text after all."""
        safe = [token for token, _ in self._held]
        self._held = []
        return safe

    def _release(self, keep: int) -> list[int]:
        """Tokens from the front as long as ``keep`` characters stay behind. The parts of one character go together."""
        count = 0
        left = sum(len(piece) for _, piece in self._held)
        for i, (_, piece) in enumerate(self._held):
            left -= len(piece)
            if left < keep:
                break
            if piece:
                count = i + 1
        safe = [token for token, _ in self._held[:count]]
        del self._held[:count]
        return safe
