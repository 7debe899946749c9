"""The client's events: each is checked whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antiphon.session import config
from antiphon.session.checks import MAX_ID, a_string, an_int, an_object, one_of, required
from antiphon.session.conversation import duplicate
from antiphon.session.core import Core
from antiphon.session.errors import Refused, wrong_type
from antiphon.session.events import Json
from antiphon.session.items import checked_item

if TYPE_CHECKING:
    from antiphon.session.machine import Session

Command = Callable[["Session", Core, Json], None]


def obey(session: Session, core: Core, event: Any) -> None:
    """Raises ``Refused``."""
    event = an_object(event, "event")
    if event.get("type") is None:
        raise Refused("The 'type' field is missing.", "missing_required_parameter", "type")
    kind = one_of(event["type"], "type", tuple(COMMANDS))
    if event.get("event_id") is not None and not isinstance(event["event_id"], str):
        raise wrong_type("event_id", "a string", event["event_id"])
    COMMANDS[kind](session, core, event)


def _update_session(session: Session, core: Core, event: Json) -> None:
    patch = required(event, "session")
    core.config = config.merged(core.config, patch, core.features, voice_locked=session.responses.spoken)
    session.hearing.apply_turn_detection()
    core.emit("session.updated", session=core.config)
    if not session.hearing.speaking and session.responses.active is None:
        session.anticipation.prepare()


def _commit(session: Session, core: Core, event: Json) -> None:
    session.hearing.commit()


def _clear(session: Session, core: Core, event: Json) -> None:
    session.hearing.clear()


def _create_item(session: Session, core: Core, event: Json) -> None:
    after = event.get("previous_item_id")
    if after is not None:
        a_string(after, "previous_item_id", MAX_ID)
    item = checked_item(required(event, "item"), "item", core.features, core.input_format, core.new_id)
    wire = item.wire
    if wire["type"] == "function_call_output" and not session.conversation.knows_call(wire["call_id"]):
        raise Refused(f"Tool call ID '{wire['call_id']}' not found in conversation.", "invalid_tool_call_id", "item.call_id")
    if item.id == session.hearing.announced:
        raise duplicate(item.id)  # speech_started has told it, and its item is still to come
    before = session.conversation.add(item, after)
    session.responses.stir()
    for kind in ("added", "done"):
        core.emit(f"conversation.item.{kind}", previous_item_id=before, item=item.public())


def _retrieve_item(session: Session, core: Core, event: Json) -> None:
    item = session.conversation.get(_item_id(event), "retrieve")
    core.emit("conversation.item.retrieved", item=item.public(audio=True))


def _truncate_item(session: Session, core: Core, event: Json) -> None:
    item_id = _item_id(event)
    index = an_int(_present(event, "content_index"), "content_index", 0, 1 << 16)
    ms = an_int(_present(event, "audio_end_ms"), "audio_end_ms", 0, 1 << 31)
    ms = session.conversation.truncate(item_id, index, ms)
    session.responses.truncated(session.conversation.items[item_id])
    core.emit("conversation.item.truncated", item_id=item_id, content_index=index, audio_end_ms=ms)


def _delete_item(session: Session, core: Core, event: Json) -> None:
    session.memory.delete(session.conversation.get(_item_id(event), "delete"))


def _create_response(session: Session, core: Core, event: Json) -> None:
    session.responses.create(event)


def _cancel_response(session: Session, core: Core, event: Json) -> None:
    session.responses.cancel(event)


def _clear_playback(session: Session, core: Core, event: Json) -> None:
    session.responses.clear_playback()


def _append(session: Session, core: Core, event: Json) -> None:
    """The edge takes appends apart; one that comes here had no audio to take."""
    a_string(required(event, "audio"), "audio", 1 << 25)


def _item_id(event: Json) -> str:
    return a_string(required(event, "item_id"), "item_id", MAX_ID)


def _present(event: Json, key: str) -> Any:
    value = event.get(key)
    return required(event, key) if value is None else value


COMMANDS: dict[str, Command] = {
    "session.update": _update_session,
    "input_audio_buffer.append": _append,
    "input_audio_buffer.commit": _commit,
    "input_audio_buffer.clear": _clear,
    "conversation.item.create": _create_item,
    "conversation.item.retrieve": _retrieve_item,
    "conversation.item.truncate": _truncate_item,
    "conversation.item.delete": _delete_item,
    "response.create": _create_response,
    "response.cancel": _cancel_response,
    "output_audio_buffer.clear": _clear_playback,
}
