"""The user's speech as items: who owns which samples, and when they may go."""

from __future__ import annotations

from antiphon.session.context import Context
from antiphon.session.conversation import Conversation, Item
from antiphon.session.core import Core
from antiphon.session.events import IN_RATE, DropAudio, ForgetAudio, Json, KeepAudio
from antiphon.session.request import Span
from antiphon.session.transcripts import Transcripts


class Memory:
    def __init__(self, core: Core, conversation: Conversation, context: Context, transcripts: Transcripts) -> None:
        self._core = core
        self._conversation = conversation
        self._context = context
        self._transcripts = transcripts
        self._excess = 0.0  # samples that are still to go

    def keep(self, item_id: str, span: Span) -> Item:
        """These samples are an item now; everything before their end that no item owns may be forgotten."""
        self._core.do(KeepAudio(span))
        self._core.do(ForgetAudio(span[1]))
        item = self.add(item_id, span)
        self._transcripts.want(span, item)
        return item

    def add(self, item_id: str, span: Span | None) -> Item:
        """Commit: exactly one item of the user, at the end of the conversation. Without a span he was silent."""
        wire: Json = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        item = Item(wire, span=span)
        before = self._conversation.add(item)
        self._core.emit("input_audio_buffer.committed", item_id=item_id, previous_item_id=before)
        for kind in ("added", "done"):
            self._core.emit(f"conversation.item.{kind}", previous_item_id=before, item=item.public())
        return item

    def delete(self, item: Item) -> None:
        """Take an item out of the conversation, and let its audio go."""
        self._conversation.delete(item.id)
        self._context.forget(item.id)
        self._transcripts.forget(item)
        if item.span:
            self._core.do(DropAudio(item.span))
        self._core.emit("conversation.item.deleted", item_id=item.id)

    def shed(self) -> None:
        """Old speech is kept as its text: the samples of an hour would be hundreds of megabytes.

        To be called between two answers only, so that no early request is made stale by it; and when it must be done it
        is done for half of what is kept, because every time the beginning of the prompt changes.
        """
        kept = [item for item in self._conversation.in_order() if item.span]
        samples = sum(item.span[1] - item.span[0] for item in kept if item.span)
        limit = self._core.features.kept_audio_s * IN_RATE
        if samples > limit:
            self._excess = max(self._excess, samples - limit / 2)
        left = self._excess
        for item in kept[:-1]:
            if left <= 0 or item.span is None:
                break
            size = item.span[1] - item.span[0]
            left -= size
            if item.understood is None:
                self._transcripts.understand(item)  # and it goes the next time
            else:
                self._excess -= size
                self._core.do(DropAudio(item.span))
                item.span = None
