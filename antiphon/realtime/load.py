"""What a busy server leaves out first: transcripts while the user speaks, then answers made before a turn is over.

Both cost compute that a longer queue takes from somebody who is waiting. The measure is that queue itself: how long, on
average over the last second, a request waited for the stage where it waits longest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from antiphon.session.events import Spare

EVERY_S = 1.0
"""How often the queues are looked at."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds of waiting past which each is left out; it comes back at half of that."""

    partials: float = 0.05
    early: float = 0.2


class Load:
    """Shared by all conversations of a server."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.spare = Spare()
        self._members: dict[object, Callable[[Spare], None]] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def join(self, tell: Callable[[Spare], None]) -> Callable[[], None]:
        """A conversation: ``tell`` gets what there is time for, whenever that changes. Call the result to leave."""
        member = object()
        self._members[member] = tell
        if self.spare != Spare():
            tell(self.spare)
        return lambda: self._leave(member)

    def sample(self, stages: Mapping[str, Any]) -> None:
        """``Client.stats()["stages"]``: per stage ``requests`` and ``queued_s`` since the start."""
        waited = 0.0
        for name, figures in stages.items():
            requests, queued = figures.get("requests", 0), figures.get("queued_s", 0.0)
            before = self._seen.get(name, (0, 0.0))
            self._seen[name] = (requests, queued)
            if requests > before[0]:
                waited = max(waited, (queued - before[1]) / (requests - before[0]))
        self._set(
            Spare(
                partials=waited <= self.bounds.partials / (1 if self.spare.partials else 2),
                early=waited <= self.bounds.early / (1 if self.spare.early else 2),
            )
        )

    def _set(self, spare: Spare) -> None:
        if spare != self.spare:
            self.spare = spare
            for tell in tuple(self._members.values()):
                tell(spare)

    def _leave(self, member: object) -> None:
        self._members.pop(member, None)
        if not self._members:
            self.spare = Spare()  # nobody looks at the queues any more: what they were is not kept for whoever comes
