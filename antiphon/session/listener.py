"""Who listens: what of the answers is being heard at this moment, and what it means to stop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from antiphon.session.conversation import Conversation, Item
from antiphon.session.core import Core
from antiphon.session.events import OUT_RATE, ClearPlayback, Played
from antiphon.session.response import Response


@dataclass
class _Sounding:
    response: Response
    item: Item

    def lead(self, now: float) -> float:
        return self.item.ledger.lead(now) if self.item.ledger else 0.0


class Listener:
    """One timeline for a session. ``until``: when everything sent will have been heard (WebRTC: it was, so long)."""

    def __init__(self, core: Core, conversation: Conversation) -> None:
        self._core = core
        self._conversation = conversation
        self._webrtc = core.features.transport == "webrtc"
        self._sounding: list[_Sounding] = []
        self.until = 0.0

    def follow(self, response: Response) -> None:
        """Keep account of what was sent of a response."""
        for output in response.outputs:
            ledger = output.item.ledger
            if ledger is None or not ledger.sent:
                continue
            if not any(sounding.item is output.item for sounding in self._sounding):
                self._sounding.append(_Sounding(response, output.item))
            if not self._webrtc and not response.aside and output.item.mark is None:
                self.until = max(self.until, ledger.until)

    def played(self, event: Played) -> None:
        """The loudspeaker has come so far."""
        for sounding in self._sounding:
            ledger = sounding.item.ledger
            if sounding.item.id == event.item_id and ledger is not None:
                ledger.played = max(ledger.played, min(event.samples, ledger.sent))

    @property
    def last(self) -> Response | None:
        """The newest response of the conversation that is still being heard."""
        found = [s.response for s in self._sounding if s.lead(self._core.now) > 0 and not s.response.aside]
        return found[-1] if found else None

    def stopped(self, item: Item) -> None:
        """Over WebSocket a client that truncates an item plays it no longer, nor anything that was to follow it."""
        if item.ledger and not item.ledger.told and item.ledger.until > self._core.now:
            item.ledger.until = self.until = self._core.now

    def hears(self, running: Collection[Response]) -> bool:
        return bool(self._heard(running))

    def to_cut(self, running: Collection[Response]) -> list[Item]:
        """What is being heard, or waits to be, unless its client has said already how far."""
        return [item for item in self._heard(running) if not item.corrected]

    def _heard(self, running: Collection[Response]) -> list[Item]:
        """What is beside the conversation counts only where the server plays it."""
        now = self._core.now
        found = [s.item for s in self._sounding if s.lead(now) > 0 and (self._webrtc or not s.response.aside)]
        for response in running:
            if self._webrtc or not response.aside:
                found += [o.item for o in response.outputs if o.queue and not any(o.item is f for f in found)]
        return found

    def silence(self, cut: list[Item], running: Collection[Response]) -> None:
        """What is being heard ends here, and gets its mark.

        Over WebSocket the client stops it and may correct the mark; over WebRTC it is stopped here, and told.
        """
        core, now = self._core, self._core.now
        self.until = min(self.until, now)
        for item in cut:
            ledger = item.ledger
            if ledger is None:
                continue
            heard = ledger.heard(now)
            item.mark = heard if item.mark is None else min(item.mark, heard)
            ledger.until = min(ledger.until, now)
            if ledger.told:
                ledger.sent = item.mark  # the rest never leaves the queue
        if not self._webrtc:
            return
        for output in (o for response in running for o in response.outputs if o.item.mark is not None):
            output.queue.clear()
        core.do(ClearPlayback())
        for sounding in self._sounding:
            if sounding.response.buffered:
                sounding.response.buffered = False
                core.emit("output_audio_buffer.cleared", response_id=sounding.response.id)
        for item in cut:
            if item.mark is not None and self._conversation.holds(item):
                ms = item.mark * 1000 // OUT_RATE
                core.emit("conversation.item.truncated", item_id=item.id, content_index=0, audio_end_ms=ms)

    def let_go(self, running: Collection[Response]) -> None:
        """Forget what has been heard to its end; over WebRTC say so, once its response is done."""
        kept = []
        for sounding in self._sounding:
            lead = sounding.lead(self._core.now)
            if lead > 0 and self._webrtc:
                self.until = self._core.now
            if lead > 0 or sounding.response in running:
                kept.append(sounding)
            elif sounding.response.buffered:
                sounding.response.buffered = False
                self._core.emit("output_audio_buffer.stopped", response_id=sounding.response.id)
        self._sounding = kept

    def close(self) -> None:
        self._sounding.clear()
