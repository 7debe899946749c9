"""Items as a client may make them: what is checked, what is refused by name, what older spellings mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.session.checks import (
    MAX_ID,
    Json,
    a_list,
    a_name,
    a_string,
    an_object,
    one_of,
    required,
)
from antiphon.session.conversation import Item
from antiphon.session.errors import Refused
from antiphon.session.features import Features

ROLES = ("user", "assistant", "system", "developer")
MAX_AUDIO = 24 << 20
"""Characters of base64 in one part: what the largest frame can carry."""
NEEDS = {"input_audio": "audio", "input_image": "image"}


def checked_item(value: Any, param: str, features: Features, format: tuple[str, int], new_id: Callable[[str], str]) -> Item:
    """A completed item of the client's. Its id is kept as it came; one without gets one. Raises ``Refused``."""
    item = an_object(value, param)
    kind = required(item, "type", param)
    if isinstance(kind, str) and kind.startswith("mcp_"):
        raise Refused(f"Items of type '{kind}' are not supported by this server.", "unsupported_value", f"{param}.type")
    one_of(kind, f"{param}.type", ("message", "function_call", "function_call_output"))
    given = item.get("id")
    item_id = a_string(given, f"{param}.id", MAX_ID) if given is not None else ""
    wire: Json = {"id": item_id or new_id("item"), "object": "realtime.item", "type": kind, "status": "completed"}
    if kind == "message":
        wire["role"] = one_of(required(item, "role", param), f"{param}.role", ROLES)
        parts = item.get("content")
        if isinstance(parts, str):
            parts = [{"type": "input_text", "text": parts}]
        if parts is None:
            required(item, "content", param)
        wire["content"] = [
            _part(part, f"{param}.content[{i}]", wire["role"], features)
            for i, part in enumerate(a_list(parts, f"{param}.content", 1024))
        ]
    elif kind == "function_call":
        wire["name"] = a_name(required(item, "name", param), f"{param}.name")
        arguments = item.get("arguments")
        wire["arguments"] = "{}" if arguments is None else a_string(arguments, f"{param}.arguments")
        call_id = item.get("call_id")
        wire["call_id"] = new_id("call") if call_id is None else a_name(call_id, f"{param}.call_id", MAX_ID)
    else:
        wire["call_id"] = a_name(required(item, "call_id", param), f"{param}.call_id", MAX_ID)
        output = item.get("output")
        if output is None:
            required(item, "output", param)
        wire["output"] = a_string(output, f"{param}.output")
    return Item(wire, format=format)


def _part(value: Any, param: str, role: str, features: Features) -> Json:
    """``text`` and ``audio`` are the older names; which part they mean follows from who speaks."""
    part = an_object(value, param)
    kind = required(part, "type", param)
    if kind == "text":
        kind = "output_text" if role == "assistant" else "input_text"
    elif kind == "audio":
        kind = "output_audio" if role == "assistant" else "input_audio"
    allowed = {
        "assistant": ("output_text", "output_audio"),
        "user": ("input_text", "input_audio", "input_image"),
    }.get(role, ("input_text",))
    one_of(kind, f"{param}.type", allowed)
    if kind in NEEDS and NEEDS[kind] not in features.inputs:
        raise Refused(f"This model does not read '{NEEDS[kind]}' input.", "unsupported_value", f"{param}.type")
    if kind in ("input_text", "output_text"):
        text = part.get("text")
        if text is None:
            required(part, "text", param)
        return {"type": kind, "text": a_string(text, f"{param}.text")}
    if kind == "input_image":
        url = part.get("image_url")
        if isinstance(url, dict):
            url = url.get("url")
        if url is None:
            required(part, "image_url", param)
        kept: Json = {"type": kind, "image_url": a_string(url, f"{param}.image_url", MAX_AUDIO)}
        if part.get("detail") is not None:
            kept["detail"] = one_of(part["detail"], f"{param}.detail", ("auto", "low", "high"))
        return kept
    transcript = part.get("transcript")
    kept = {"type": kind, "transcript": None}
    if transcript is not None:
        kept["transcript"] = a_string(transcript, f"{param}.transcript")
    if kind == "output_audio":
        return kept  # a client brings back what was said as text; its bytes are not read
    audio = part.get("audio")
    if audio is None and transcript is None:
        required(part, "audio", param)
    if audio is not None:
        kept["audio"] = a_string(audio, f"{param}.audio", MAX_AUDIO)
    return kept
