"""The user says nothing for too long after an answer: his silence becomes an empty item, and is answered.

Only server_vad has ``idle_timeout_ms``. The time runs from when the last answer had been heard to its end.
"""

from __future__ import annotations

from antiphon.session.core import Core
from antiphon.session.events import IN_RATE
from antiphon.session.hearing import Hearing
from antiphon.session.memory import Memory
from antiphon.session.responses import Responses


class Idle:
    def __init__(self, core: Core, hearing: Hearing, memory: Memory, responses: Responses) -> None:
        self._core = core
        self._hearing = hearing
        self._memory = memory
        self._responses = responses

    def due(self) -> float | None:
        policy = self._core.turn_detection
        limit = policy.get("idle_timeout_ms") if policy and self._core.converses else None
        quiet = self._responses.quiet_since
        return None if limit is None or quiet is None or self._hearing.speaking else quiet + limit / 1000

    def time_out(self) -> None:
        core, received = self._core, self._hearing.received
        quiet = self._responses.quiet_since or core.now
        self._responses.stir()
        item_id = core.new_id("item")
        start = max(0, received - round((core.now - quiet) * IN_RATE))  # told, not kept: most of it is forgotten by now
        core.counts["idle_timeouts"] += 1
        core.emit(
            "input_audio_buffer.timeout_triggered",
            item_id=item_id,
            audio_start_ms=start * 1000 // IN_RATE,
            audio_end_ms=received * 1000 // IN_RATE,
        )
        self._memory.add(item_id, None)
        self._responses.answer()
