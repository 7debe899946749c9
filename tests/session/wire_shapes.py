"""The fields that the protocol demands of every server event, and what strict clients refuse (from its specification)."""

from __future__ import annotations

from typing import Any

IDS = ("response_id", "item_id", "output_index")
PART = (*IDS, "content_index")
TRANSCRIPTION = "conversation.item.input_audio_transcription"
REQUIRED: dict[str, tuple[str, ...]] = {
    "error": ("error",),
    "session.created": ("session",),
    "session.updated": ("session",),
    "conversation.item.added": ("item", "previous_item_id"),
    "conversation.item.done": ("item", "previous_item_id"),
    "conversation.item.retrieved": ("item",),
    "conversation.item.truncated": ("item_id", "content_index", "audio_end_ms"),
    "conversation.item.deleted": ("item_id",),
    f"{TRANSCRIPTION}.delta": ("item_id", "content_index", "delta"),
    f"{TRANSCRIPTION}.completed": ("item_id", "content_index", "transcript", "usage"),
    f"{TRANSCRIPTION}.failed": ("item_id", "content_index", "error"),
    "input_audio_buffer.committed": ("item_id", "previous_item_id"),
    "input_audio_buffer.cleared": (),
    "input_audio_buffer.speech_started": ("item_id", "audio_start_ms"),
    "input_audio_buffer.speech_stopped": ("item_id", "audio_end_ms"),
    "input_audio_buffer.timeout_triggered": ("item_id", "audio_start_ms", "audio_end_ms"),
    "response.created": ("response",),
    "response.done": ("response",),
    "response.output_item.added": ("response_id", "output_index", "item"),
    "response.output_item.done": ("response_id", "output_index", "item"),
    "response.content_part.added": (*PART, "part"),
    "response.content_part.done": (*PART, "part"),
    "response.output_text.delta": (*PART, "delta"),
    "response.output_text.done": (*PART, "text"),
    "response.output_audio.delta": (*PART, "delta"),
    "response.output_audio.done": PART,
    "response.output_audio_transcript.delta": (*PART, "delta"),
    "response.output_audio_transcript.done": (*PART, "transcript"),
    "response.function_call_arguments.delta": (*IDS, "call_id", "delta"),
    "response.function_call_arguments.done": (*IDS, "call_id", "arguments", "name"),
    "rate_limits.updated": ("rate_limits",),
    "output_audio_buffer.started": ("response_id",),
    "output_audio_buffer.stopped": ("response_id",),
    "output_audio_buffer.cleared": ("response_id",),
}
MAY_BE_NULL = {"previous_item_id"}
ITEM_PARTS = {"input_text", "input_audio", "input_image", "output_text", "output_audio"}


def check_shape(event: dict[str, Any]) -> None:
    kind = event["type"]
    assert kind in REQUIRED, f"not an event of the protocol: {kind}"
    assert "event_id" not in event, "the edge numbers events"
    for name in REQUIRED[kind]:
        assert name in event, f"{kind} lacks {name}"
        assert event[name] is not None or name in MAY_BE_NULL, f"{kind}: {name} is null"
    for name in ("audio_start_ms", "audio_end_ms", "output_index", "content_index"):
        assert type(event.get(name, 0)) is int, f"{kind}: {name} is no int"
    if "item" in event:
        check_item(event["item"])
    if kind in ("response.created", "response.done"):
        check_response(event["response"], done=kind.endswith("done"))
    if "part" in event:
        assert event["part"]["type"] in ("text", "audio"), "parts of content_part events have the short names"
    if kind == "error":
        assert set(event["error"]) == {"type", "code", "message", "param", "event_id"}
        assert event["error"]["type"] and event["error"]["message"]
    if kind == "rate_limits.updated":
        for limit in event["rate_limits"]:
            assert limit["name"] in ("requests", "tokens")
            assert None not in limit.values()
    if kind.endswith("transcription.completed"):
        assert event["usage"]["type"] == "duration" and event["usage"]["seconds"] >= 0


def check_item(item: dict[str, Any]) -> None:
    assert None not in item.values(), f"a key of an item is left out, never null: {item}"
    assert item["object"] == "realtime.item" and item["id"]
    assert item["status"] in ("in_progress", "completed", "incomplete")
    match item["type"]:
        case "message":
            assert item["role"] in ("user", "assistant", "system", "developer")
            for part in item["content"]:
                assert part["type"] in ITEM_PARTS
                if part["type"] in ("input_audio", "output_audio"):
                    assert "transcript" in part
        case "function_call":
            assert isinstance(item["arguments"], str) and item["name"] and item["call_id"]
        case "function_call_output":
            assert isinstance(item["output"], str) and item["call_id"]
        case other:
            raise AssertionError(f"unknown item type {other}")


def check_response(response: dict[str, Any], done: bool) -> None:
    assert response["object"] == "realtime.response"
    wanted = ("completed", "cancelled", "failed", "incomplete") if done else ("in_progress",)
    assert response["status"] in wanted
    details = response["status_details"]
    if response["status"] in ("in_progress", "completed"):
        assert details is None
    else:
        assert details["type"] == response["status"]
    if not done:
        assert response["output"] == [] and response["usage"] is None
        return
    usage = response["usage"]
    numbers = [usage["total_tokens"], usage["input_tokens"], usage["output_tokens"]]
    for side in ("input_token_details", "output_token_details"):
        numbers += [v for v in usage[side].values() if not isinstance(v, dict)]
    numbers += usage["input_token_details"]["cached_tokens_details"].values()
    assert all(type(n) is int and n >= 0 for n in numbers), usage
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    for item in response["output"]:
        check_item(item)
        assert item["status"] != "in_progress"
