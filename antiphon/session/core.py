"""What the parts of one session share: its configuration, its clock reading, its ids, and the effects being collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from antiphon.session.config import format_of
from antiphon.session.events import Json, Out, Send, Spare
from antiphon.session.features import Features


class Core:
    """One handling of an event fills ``out`` in the order in which things are to happen.

    ``counts``: what is worth a metric (turns, early answers won and wasted, interruptions ...), by name.
    """

    def __init__(
        self,
        config: Json,
        features: Features,
        new_id: Callable[[str], str],
        rate_limits: Callable[[], list[Json]],
    ) -> None:
        self.config = config
        self.features = features
        self.new_id = new_id
        self.rate_limits = rate_limits
        self.spare = Spare()
        self.user_speaks = False
        """Kept by ``hearing``: nobody begins to answer in the middle of a turn."""
        self.now = 0.0
        self.out: list[Out] = []
        self.counts: Counter[str] = Counter()

    def emit(self, kind: str, **fields: object) -> None:
        """Tell the client."""
        self.out.append(Send({"type": kind, **fields}))

    def do(self, effect: Out) -> None:
        self.out.append(effect)

    @property
    def turn_detection(self) -> Json | None:
        found: Json | None = self.config["audio"]["input"]["turn_detection"]
        return found

    @property
    def input_format(self) -> tuple[str, int]:
        """The type and the samples per second of the audio that the client sends."""
        return format_of(self.config)

    @property
    def converses(self) -> bool:
        """False in a transcription session, which never answers."""
        return bool(self.config["type"] == "realtime")
