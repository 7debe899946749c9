"""What a conversation's shell stands between: its machine, its transport, its ears, and whoever looks on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.realtime.state import Generation
from antiphon.session import events as ev
from antiphon.session.events import Json


class Machine(Protocol):
    """``session.machine.Session``, as far as the shell knows it."""

    @property
    def config(self) -> Json: ...

    deadline: float | None

    @property
    def counts(self) -> Mapping[str, int]: ...

    def begin(self, now: float) -> list[ev.Out]: ...

    def handle(self, event: ev.In, now: float) -> list[ev.Out]: ...


class Door(Protocol):
    """What a transport does for the shell. None of it waits."""

    def send(self, event: Json) -> None:
        """A GA event without event_id, where base64 will be with the samples themselves."""

    def play(self, sound: ev.Play) -> None: ...

    def clear_playback(self) -> None: ...

    def hang_up(self, code: int, reason: str) -> None:
        """Close once everything sent so far has left."""


class Ear(Protocol):
    """The session's place in the batched ears. Scores come back as ``ev.SpeechScored`` on the loop's thread."""

    def push(self, samples: NDArray[np.float32]) -> None: ...

    def score_turn(self, samples: NDArray[np.float32], done: Callable[[float | None], None]) -> None: ...

    def expect_echo(self, samples: int) -> None:
        """In the next ``samples`` the agent's own voice may come back."""

    def close(self) -> None: ...


class Observer(Protocol):
    """Sees everything, changes nothing: metrics and traces."""

    def saw(self, event: ev.In | None, effects: list[ev.Out], now: float) -> None: ...

    def began(self, gen: str, kind: str, work: Generation) -> None: ...

    def ended(self, gen: str, *, aborted: bool) -> None: ...

    def counted(self, counts: Mapping[str, int]) -> None:
        """The machine's own counts since the session began."""

    def broke(self, error: Exception) -> None: ...
