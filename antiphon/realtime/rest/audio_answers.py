"""Spoken answers that a later request can refer to as ``{"role": "assistant", "audio": {"id": ...}}``.

What is kept is the transcript, for it is what a language model reads back; it is bounded and expires.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable

from antiphon.realtime.errors import NotFound

MAX_KEPT = 4096


class AudioAnswers:
    """Transcripts by id, each its caller's own. ``clock`` gives unix seconds."""

    def __init__(self, lifetime_s: float, clock: Callable[[], float]) -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._kept: OrderedDict[str, tuple[str, int, str]] = OrderedDict()

    def announce(self) -> tuple[str, int]:
        """A new id and its expiry in unix seconds."""
        return f"audio_{uuid.uuid4().hex}", int(self._clock() + self._lifetime_s)

    def keep(self, audio_id: str, expires_at: int, caller: str, transcript: str) -> None:
        """The answer is out."""
        self._kept[audio_id] = (caller, expires_at, transcript)
        while len(self._kept) > MAX_KEPT or self._oldest_expired():
            self._kept.popitem(last=False)

    def transcript(self, audio_id: str, caller: str, param: str) -> str:
        """What was said. Raises ``NotFound`` for an id that is unknown, expired or another caller's."""
        found = self._kept.get(audio_id)
        if found is None or found[0] != caller or found[1] <= self._clock():
            raise NotFound(f"Audio '{audio_id[:64]}' does not exist or has expired.", code="audio_not_found", param=param)
        return found[2]

    def _oldest_expired(self) -> bool:
        return bool(self._kept) and next(iter(self._kept.values()))[1] <= self._clock()
