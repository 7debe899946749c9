"""Items, their order, what of them was heard, and the context that the model is given."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from antiphon.session.errors import Refused
from antiphon.session.events import IN_RATE, OUT_RATE, InputAudio, Json
from antiphon.session.playback import Ledger
from antiphon.session.request import Call, CallOutput, Clip, Entry, Heard, Image, Message, Part, Span, Text

RETRIEVED_AUDIO_S = 12
"""Longest user audio in a retrieved item: as base64 of 24 kHz PCM it stays under the 1 MiB frame that clients take."""
RETRIEVED_AUDIO_CHARS = 900_000


def duplicate(item_id: str) -> Refused:
    return Refused(
        f"Error adding item: the item with id '{item_id}' already exists.", "item_create_duplicate_item_id", "item.id"
    )


def conversation_id(session: Json) -> str:
    """A session has one conversation, and it is called after it."""
    return "conv_" + str(session["id"]).removeprefix("sess_")


@dataclass(eq=False)
class Item:
    """``wire`` is the GA shape with the whole text, never cut.

    ``span``: the user's samples that the model hears. ``understood``: their text, once known, whether or not the client
    asked to see it. ``ledger``: what the agent said aloud. ``mark``: heard samples; None is all of it.
    ``corrected``: the client has set the mark, who knows better. ``format``: of audio that a client put in.
    """

    wire: Json
    span: Span | None = None
    understood: str | None = None
    ledger: Ledger | None = None
    mark: int | None = None
    corrected: bool = False
    format: tuple[str, int] = ("audio/pcm", 24_000)

    @property
    def id(self) -> str:
        return str(self.wire["id"])

    @property
    def said(self) -> str:
        """The whole text of an answer, so far."""
        return "".join(part.get("transcript") or part.get("text") or "" for part in self.wire.get("content", ()))

    def heard_text(self) -> str:
        """The text up to the mark."""
        if self.mark is None or self.ledger is None:
            return self.said
        return self.said[: self.ledger.text_at(self.mark, self.said)]

    def public(self, audio: bool = False) -> Json:
        """As a client sees it: text up to the mark; the user's audio only on request, and only if it fits a frame."""
        wire = copy.deepcopy({key: value for key, value in self.wire.items() if key != "content"})
        if "content" in self.wire:
            wire["content"] = [self._public_part(part, audio) for part in self.wire["content"]]
        return wire

    def _public_part(self, part: Json, audio: bool) -> Json:
        shown = {key: value for key, value in part.items() if key != "audio"}
        if shown["type"] == "output_audio":
            shown["transcript"] = self.heard_text()
        if audio and shown["type"] == "input_audio":
            if self.span and self.span[1] - self.span[0] <= RETRIEVED_AUDIO_S * IN_RATE:
                shown["audio"] = InputAudio(self.span)
            elif len(part.get("audio") or "") in range(1, RETRIEVED_AUDIO_CHARS):
                shown["audio"] = part["audio"]
        return shown

    def entries(self, name: str = "") -> list[Entry]:
        """As the model reads it. Speech stays a span, so that its late transcript changes no request. ``name``: what the client
        calls it where that is not by its id."""
        wire, name = self.wire, name or f"item '{self.id}'"
        if wire["type"] == "function_call":
            done = wire["status"] == "completed"
            return [Call(wire["call_id"], wire["name"], wire["arguments"])] if done else []
        if wire["type"] == "function_call_output":
            return [CallOutput(wire["call_id"], wire["output"])]
        if self.span:
            return [Message("user", (Heard(self.span),), name)]
        if self.ledger:
            text = self.heard_text()
            return [Message("assistant", (Text(text),))] if text else []
        parts = tuple(p for part in wire["content"] if (p := self._part(part)) is not None)
        empty_turn = wire["role"] == "user" and not parts
        return [Message(wire["role"], parts, name)] if parts or empty_turn else []

    def _part(self, part: Json) -> Part | None:
        match part["type"]:
            case "input_image":
                return Image(part["image_url"], part.get("detail") or "auto")
            case "input_audio":
                if part.get("audio"):
                    return Clip(part["audio"], self.format, part.get("transcript"))
                text = self.understood or part.get("transcript")
                return Text(text) if text else None
        text = part.get("text") or part.get("transcript")
        return Text(text) if text else None


@dataclass
class Conversation:
    """The one ordered list of a session."""

    id: str
    items: dict[str, Item] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def before(self, item_id: str) -> str | None:
        at = self.order.index(item_id)
        return self.order[at - 1] if at else None

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Insert, and return the id before it. ``after``: None appends, "root" is the front."""
        if item.id in self.items:
            raise duplicate(item.id)
        if not after:
            at = len(self.order)
        elif after == "root":
            at = 0
        elif after in self.items:
            at = self.order.index(after) + 1
        else:
            raise Refused(
                f"Error inserting item: the previous item with id '{after}' does not exist.",
                "item_create_invalid_previous_item_id",
                "previous_item_id",
            )
        self.order.insert(at, item.id)
        self.items[item.id] = item
        return self.order[at - 1] if at else None

    def holds(self, item: Item) -> bool:
        """Whether it is in it: once it was deleted, the client may have given its id to another."""
        return self.items.get(item.id) is item

    def get(self, item_id: str, verb: str, param: str = "item_id") -> Item:
        """``verb``: retrieve, truncate, delete; it names the error."""
        if item_id not in self.items:
            doing = verb.removesuffix("e") + "ing"
            raise Refused(
                f"Error {doing} item: the item with id '{item_id}' does not exist.", f"item_{verb}_invalid_item_id", param
            )
        return self.items[item_id]

    def delete(self, item_id: str) -> Item:
        self.get(item_id, "delete")
        self.order.remove(item_id)
        return self.items.pop(item_id)

    def truncate(self, item_id: str, content_index: int, ms: int) -> int:
        """Set what was heard, clamped to what was sent; return the milliseconds that now count."""
        item = self.get(item_id, "truncate")
        if item.wire["type"] != "message" or item.wire["role"] != "assistant":
            raise Refused("Only model output audio messages can be truncated.", "invalid_value", "item_id")
        if content_index != 0:
            raise Refused(f"Invalid content index: {content_index}.", "invalid_value", "content_index")
        if item.ledger is None:
            return ms
        item.mark = min(ms * OUT_RATE // 1000, item.ledger.sent)
        item.corrected = True
        return min(ms, item.ledger.sent * 1000 // OUT_RATE)

    def knows_call(self, call_id: Any) -> bool:
        return any(item.wire["type"] == "function_call" and item.wire.get("call_id") == call_id for item in self.items.values())

    def in_order(self) -> list[Item]:
        return [self.items[item_id] for item_id in self.order]
