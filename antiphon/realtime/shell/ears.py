"""One server's batched ears as its conversations use them."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.pipelines.ears.ears import Ear, Ears, Score
from antiphon.session.events import SpeechScored


class SharedEars:
    """An ``OpenEar``: called once for each conversation, on its loop."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears

    def __call__(self, on_score: Callable[[SpeechScored], None]) -> Ear:
        def scored(scores: list[Score]) -> None:
            for score in scores:
                on_score(SpeechScored(score.end, score.p, score.loud))

        return self._ears.open(scored)

    def stats(self) -> dict[str, int]:
        """Counts since the start; see ``Ears.stats``. The open sessions are counted at the doors."""
        return {name: number for name, number in self._ears.stats().items() if name != "sessions"}
