"""What a client has put into its conversation by itself, in bytes: bounded, so that no session can fill the memory."""

from __future__ import annotations

from antiphon.realtime.errors import ProtocolError

MAX_HELD = 64 << 20


class Holdings:
    """The items that a client created in one conversation. What it speaks is bounded by the session itself."""

    def __init__(self, limit: int = MAX_HELD) -> None:
        self._limit = limit
        self._sizes: dict[str, int] = {}
        self._held = 0
        self._coming = 0

    def ask(self, size: int, event_id: str | None) -> None:
        """An item of so many bytes is about to be created; raises ``ProtocolError`` when there is no room for it."""
        if self._held + size > self._limit:
            raise ProtocolError(
                f"This conversation holds {self._held >> 20} MiB of created items; the limit is {self._limit >> 20} MiB. "
                "Delete some first.",
                code="conversation_too_large",
                param="item",
                event_id=event_id,
            )
        self._coming = size

    def told(self, kind: str, item_id: str) -> None:
        """The session added or deleted an item."""
        if kind == "conversation.item.added" and self._coming:
            self._sizes[item_id] = self._coming
            self._held += self._coming
            self._coming = 0
        elif kind == "conversation.item.deleted":
            self._held -= self._sizes.pop(item_id, 0)

    def settle(self) -> None:
        """The command is over; an item that was refused takes no room."""
        self._coming = 0
