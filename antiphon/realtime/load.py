"""What a busy server leaves out first: transcripts while the user speaks, then answers made before a turn is over.

Both cost compute that a longer queue takes from somebody who is waiting. The measure is the number of conversations in
which somebody speaks or an answer is under way: it is known at once, and it is what the lanes have to serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.session.events import Spare


@dataclass(frozen=True, slots=True)
class Bounds:
    """Busy conversations up to which each is made; past it every session is told to leave it out."""

    partials: int = 2
    early: int = 4


class Load:
    """Shared by all conversations of a server."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._members: set[Member] = set()
        self.busy = 0
        self.spare = Spare()

    def join(self, tell: Callable[[Spare], None]) -> Member:
        """A conversation; ``tell`` gets what there is time for, whenever that changes."""
        member = Member(self, tell)
        self._members.add(member)
        if self.spare != Spare():
            tell(self.spare)
        return member

    def changed(self, by: int) -> None:
        """So many conversations more are busy."""
        self.busy += by
        spare = Spare(partials=self.busy <= self._bounds.partials, early=self.busy <= self._bounds.early)
        if spare != self.spare:
            self.spare = spare
            for member in tuple(self._members):
                member.tell(spare)

    def remove(self, member: Member) -> None:
        self._members.discard(member)


class Member:
    """One conversation's part in the load."""

    def __init__(self, load: Load, tell: Callable[[Spare], None]) -> None:
        self._load = load
        self._busy = False
        self.tell = tell

    def set(self, busy: bool) -> None:
        if busy != self._busy:
            self._busy = busy
            self._load.changed(1 if busy else -1)

    def leave(self) -> None:
        self._load.remove(self)
        self.set(False)
