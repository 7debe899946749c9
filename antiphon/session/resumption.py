"""An answer that was cut by something that turned out to be no speech goes on where it stopped. Optional.

The client has been told that the answer ended, so its rest is a response of its own: the words and the audio from the
mark on, and whatever its generation, which was let run meanwhile, still makes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.session.core import Core
from antiphon.session.early import Made
from antiphon.session.events import Abort, AudioMade, Ended, TextMade
from antiphon.session.request import Request
from antiphon.session.response import Response


@dataclass
class Parked:
    """``shift``: (samples, characters) of the answer that its new item lacks; marks count from the whole answer."""

    gen: str
    request: Request
    shift: tuple[int, int]
    running: bool
    made: list[Made] = field(default_factory=list)


class Resumption:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._parked: Parked | None = None

    def park(self, response: Response) -> bool:
        """Before its end: keep what of it was not heard. True if its generation is to run on."""
        core = self._core
        output = response.speech
        if not core.features.resume_after_false_interruption or output is None or output.item.ledger is None:
            return False
        if response.status in ("cancelled", "failed"):
            return False  # somebody else ended it
        self.drop()
        heard = output.item.ledger.heard(core.now)
        text = output.item.ledger.text_at(heard, output.text)
        start, pieces = output.unheard(heard)
        self._parked = Parked(response.gen, response.request, (start, text), running=not response.ended_with)
        if output.text[text:]:
            self._parked.made.append(TextMade(response.gen, output.text[text:], tokens=0))
        self._parked.made += pieces
        if response.ended_with:
            self._parked.made.append(response.ended_with)
        return self._parked.running

    def made(self, event: Made) -> bool:
        """True when it was of the parked answer."""
        parked = self._parked
        if parked is None or event.gen != parked.gen:
            return False
        if parked.running:
            parked.made.append(event)
            parked.running = not isinstance(event, Ended)
        return True

    def take(self) -> Parked | None:
        """What is to go on, if there is anything left to hear."""
        parked, self._parked = self._parked, None
        if parked and (parked.running or any(isinstance(event, AudioMade) for event in parked.made)):
            return parked
        return None

    def drop(self) -> None:
        """It was speech: nothing goes on."""
        parked, self._parked = self._parked, None
        if parked and parked.running:
            self._core.do(Abort(parked.gen))

    @property
    def running(self) -> set[str]:
        return {self._parked.gen} if self._parked and self._parked.running else set()
