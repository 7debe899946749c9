"""What an answer is asked with: the request, and the part of the conversation that fits the model.

Trimming is sticky and goes in whole turns, oldest first, a good piece at a time: a prompt whose beginning changes at
every turn could never be read from a cache. Instructions, tools and system messages always stay.
"""

from __future__ import annotations

import math

from antiphon.session.checks import MAX_ID, a_string, canonical, required
from antiphon.session.config import recognition_of
from antiphon.session.conversation import Conversation, Item
from antiphon.session.core import Core
from antiphon.session.errors import ContextOverflow
from antiphon.session.events import ContextTrimmed, Json
from antiphon.session.items import checked_item
from antiphon.session.params import ResponseParams
from antiphon.session.request import Entry, Request, standing
from antiphon.session.tools import choice_in_force

AUTO_RETENTION = 0.5
"""How full the context is left by "auto". After a cut all that is kept is read anew, so a talk's turns cost r / (1 - r) of
their own length on top: once at 0.5, four times at 0.8."""
AHEAD_SHARE = 16
"""What is read ahead leaves this part of the context for the turn to come, else that turn would be the one that cuts."""
LIMIT_SHARE = 4
"""Of the context at most this part is kept free for an answer with a limit of its own, which is a bound and no wish: many
clients send the protocol's largest, 4096, and that is the whole context of a small model."""
ANSWER_SHARE = 8
"""A context is full when less than this part of it is left for an answer without a limit of its own."""


class Context:
    def __init__(self, core: Core, conversation: Conversation) -> None:
        self._core = core
        self._conversation = conversation
        self._trimmed: set[str] = set()

    def request(self, params: ResponseParams, extra: tuple[Entry, ...] = (), *, ahead: bool = False) -> Request:
        """``extra``: speech that is no item yet. ``ahead``: before the turn to be answered is there.

        Raises ``Refused`` for a bad input item, ``ContextOverflow``.
        """
        config = self._core.config
        tools = config["tools"] if params.tools is None else params.tools
        choice = config["tool_choice"] if params.tool_choice is None else params.tool_choice
        limit = config["max_output_tokens"] if params.max_tokens is None else params.max_tokens
        instructions = config["instructions"] if params.instructions is None else params.instructions
        parallel = config["parallel_tool_calls"] if params.parallel_tool_calls is None else params.parallel_tool_calls
        fixed = canonical(tools)
        max_tokens = None if limit == "inf" else int(limit)
        if params.input is None:
            entries = self._fitting(standing(instructions, fixed), max_tokens, extra, ahead)
        else:
            entries = self._given(params.input)
        modality = params.modality or config["output_modalities"][0]
        return Request(
            instructions=instructions,
            context=entries,
            modality="audio" if modality == "audio" else "text",
            tools=fixed,
            tool_choice=canonical(choice_in_force(choice, tools)),
            parallel_tool_calls=parallel,
            voice=params.voice or config["audio"]["output"]["voice"],
            speed=config["audio"]["output"]["speed"],
            max_tokens=max_tokens,
            temperature=config.get("temperature") if params.temperature is None else params.temperature,
            recognition=recognition_of(config),
        )

    def forget(self, item_id: str) -> None:
        self._trimmed.discard(item_id)

    def _given(self, given: list[Json]) -> tuple[Entry, ...]:
        """``response.input``: items and references stand for the whole conversation."""
        entries: list[Entry] = []
        for i, value in enumerate(given):
            path = f"response.input[{i}]"
            if isinstance(value, dict) and value.get("type") == "item_reference":
                item_id = a_string(required(value, "id", path), f"{path}.id", MAX_ID)
                entries += self._conversation.get(item_id, "retrieve", f"{path}.id").entries()
            else:
                core = self._core
                entries += checked_item(value, path, core.features, core.input_format, core.new_id).entries(path)
        return tuple(entries)

    def _fitting(
        self, fixed: tuple[Entry, ...], max_tokens: int | None, extra: tuple[Entry, ...], ahead: bool
    ) -> tuple[Entry, ...]:
        """``fixed``: what is always there."""
        kept = [(item, item.entries()) for item in self._conversation.in_order() if item.id not in self._trimmed]
        features = self._core.features
        if limit := features.context_tokens or features.conversation_tokens:
            free = min(limit, features.conversation_tokens or limit) // AHEAD_SHARE if ahead else 0
            answer = min(max_tokens, limit // LIMIT_SHARE) if max_tokens else limit // ANSWER_SHARE
            room = limit - answer if features.context_tokens else math.inf
            kept = self._trim(kept, fixed, room, extra, free)
        return (*(entry for _, entries in kept for entry in entries), *extra)

    def _trim(
        self, kept: list[tuple[Item, list[Entry]]], fixed: tuple[Entry, ...], room: float, extra: tuple[Entry, ...], free: int
    ) -> list[tuple[Item, list[Entry]]]:
        estimate = self._core.features.estimate
        head = sum(map(estimate, fixed))
        size = {item.id: sum(map(estimate, entries)) for item, entries in kept}
        used = sum(size.values()) + sum(map(estimate, extra))
        ratio, room = self._policy(room - head)
        if used + (free if ratio is not None else 0) <= room:
            return kept
        if ratio is None:
            raise ContextOverflow(head + used, head + int(room))
        before, gone = used, 0
        for turn in _turns([item for item, _ in kept], keep_last=not extra):
            if used <= ratio * room:
                break
            for item in turn:
                used -= size[item.id]
                gone += 1
                self._trimmed.add(item.id)
        if gone:
            self._core.counts["context_items_trimmed"] += gone
            self._core.do(ContextTrimmed(gone, head + before))
        return [pair for pair in kept if pair[0].id not in self._trimmed]

    def _policy(self, room: float) -> tuple[float | None, float]:
        """What is kept of the room when it overflows (None: nothing may go), and the room itself."""
        keeps = self._core.features.conversation_tokens
        policy = self._core.config["truncation"]
        if policy == "disabled":
            return None, room
        room = min(room, keeps) if keeps else room
        if policy == "auto":
            return AUTO_RETENTION, room
        limits = policy.get("token_limits") or {}
        return policy["retention_ratio"], min(room, limits.get("post_instructions", room))


def _turns(items: list[Item], keep_last: bool) -> list[list[Item]]:
    """What may go, oldest first: a turn begins where the user speaks after somebody else, so that a call and its
    output, a question and its answer go together. System messages never go, nor does the turn to be answered."""
    turns: list[list[Item]] = []
    previous = ""
    for item in items:
        who = item.wire.get("role", "assistant")
        if who in ("system", "developer"):
            continue
        if not turns or (who == "user" and previous != "user"):
            turns.append([])
        turns[-1].append(item)
        previous = who
    return turns[:-1] if keep_last or previous == "user" else turns
