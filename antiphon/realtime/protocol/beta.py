"""The beta dialect: names translated at the edge, both ways. Inside there are only GA events.

The names are those of the reference page's section 8; the beta session is flat and has no type.
"""

from __future__ import annotations

from typing import Any

from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.protocol.schema import Json
from antiphon.session.conversation import conversation_id

FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
NAMES = {ga: beta for beta, ga in FORMATS.items()}

EVENTS = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "conversation.item.added": "conversation.item.created",
}
DROPPED = {"conversation.item.done"}
TEMPERATURE = 0.8
"""What the beta told of a session that had set none."""
PARTS = {"output_text": "text", "output_audio": "audio"}
PARAMS = {
    "session.audio.input.turn_detection": "session.turn_detection",
    "session.audio.input.transcription": "session.input_audio_transcription",
    "session.audio.input.noise_reduction": "session.input_audio_noise_reduction",
    "session.audio.input.format.rate": "session.input_audio_sample_rate",  # before the format that it is a part of
    "session.audio.input.format": "session.input_audio_format",
    "session.audio.output.format": "session.output_audio_format",
    "session.audio.output.voice": "session.voice",
    "session.audio.output.speed": "session.speed",
    "session.max_output_tokens": "session.max_response_output_tokens",
    "session.output_modalities": "session.modalities",
    "response.output_modalities": "response.modalities",
    "response.max_output_tokens": "response.max_response_output_tokens",
    "response.audio.output.voice": "response.voice",
    "response.audio.output.format": "response.output_audio_format",
}


class Beta:
    """The translator of one connection."""

    # ---- from the client
    def to_ga(self, event: Json) -> Json:
        """A checked beta event as the GA event of the same meaning; raises ``ProtocolError`` for a format unknown."""
        match event["type"]:
            case "session.update":
                return {**event, "session": session_to_ga(event["session"], event_id=event.get("event_id"))}
            case "transcription_session.update":
                session = session_to_ga(event["session"], kind="transcription", event_id=event.get("event_id"))
                return {**event, "type": "session.update", "session": session}
            case "response.create" if event.get("response"):
                return {**event, "response": _response_to_ga(event["response"], event.get("event_id"))}
            case "conversation.item.create":
                return {**event, "item": _item_to_ga(event["item"])}
        return event

    # ---- to the client
    def from_ga(self, event: Json) -> list[Json]:
        """What the client is told in place of a GA server event: none, one, or (session.created) two events."""
        kind = event["type"]
        if kind in DROPPED:
            return []
        event = {**event, "type": EVENTS.get(kind, kind)}
        if kind == "error" and event["error"].get("param"):
            error, path = event["error"], _param(event["error"]["param"])
            event["error"] = {**error, "param": path, "message": error["message"].replace(f"'{error['param']}'", f"'{path}'")}
        elif kind in ("session.created", "session.updated"):
            session = event["session"]
            transcription = session.get("type") == "transcription"
            if transcription:
                event["type"] = f"transcription_{kind}"
            event["session"] = session_from_ga(session)
            if kind == "session.created" and not transcription:
                conversation = {"id": conversation_id(session), "object": "realtime.conversation"}
                return [event, {"type": "conversation.created", "conversation": conversation}]
        elif kind in ("response.created", "response.done"):
            event["response"] = _response_from_ga(event["response"])
        elif kind == "response.function_call_arguments.done":
            event.pop("name", None)
        if isinstance(event.get("item"), dict):
            event["item"] = _item_from_ga(event["item"])
        return [event]


def session_to_ga(flat: Json, *, kind: str = "realtime", event_id: str | None = None) -> Json:
    """A flat session, whole or partial, as a GA one; only the keys that are there appear."""
    session: Json = {"type": kind}
    for name in ("model", "instructions", "tools", "tool_choice", "temperature", "tracing", "include"):
        if name in flat:
            session[name] = flat[name]
    if flat.get("modalities") is not None:
        session["output_modalities"] = _output_modalities(flat["modalities"])
    if flat.get("max_response_output_tokens") is not None:
        session["max_output_tokens"] = flat["max_response_output_tokens"]
    heard: Json = {}
    rate = flat.get("input_audio_sample_rate")
    if flat.get("input_audio_format") is not None or rate is not None:
        heard["format"] = _format(flat.get("input_audio_format") or "pcm16", "session.input_audio_format", event_id, rate)
    if "input_audio_transcription" in flat:
        heard["transcription"] = flat["input_audio_transcription"]
    if "input_audio_noise_reduction" in flat:
        heard["noise_reduction"] = flat["input_audio_noise_reduction"]
    if "turn_detection" in flat:
        turns = flat["turn_detection"]
        heard["turn_detection"] = None if (turns or {}).get("type") == "none" else turns
    said = _output(flat, "session", event_id)
    if heard or said:
        session["audio"] = ({"input": heard} if heard else {}) | ({"output": said} if said else {})
    return session


def session_from_ga(session: Json) -> Json:
    """The whole effective GA session as the flat one that beta clients know."""
    heard = session["audio"]["input"]
    flat: Json = {
        "id": session["id"],
        "object": session["object"],
        "expires_at": session.get("expires_at"),
        "modalities": _modalities(session.get("output_modalities")),
        "input_audio_format": NAMES.get((heard.get("format") or {}).get("type", ""), "pcm16"),
        "input_audio_transcription": heard.get("transcription"),
        "input_audio_noise_reduction": heard.get("noise_reduction"),
        "turn_detection": heard.get("turn_detection"),
        "include": session.get("include"),
        "client_secret": None,
    }
    rate = (heard.get("format") or {}).get("rate")
    if rate not in (None, 24_000):
        flat["input_audio_sample_rate"] = rate
    if session.get("type") == "transcription":
        return flat
    said = session["audio"]["output"]
    return flat | {
        "model": session.get("model"),
        "instructions": session.get("instructions"),
        "voice": said.get("voice"),
        "speed": said.get("speed"),
        "output_audio_format": NAMES.get((said.get("format") or {}).get("type", ""), "pcm16"),
        "tools": session.get("tools"),
        "tool_choice": session.get("tool_choice"),
        "temperature": session.get("temperature", TEMPERATURE),
        "max_response_output_tokens": session.get("max_output_tokens"),
        "tracing": session.get("tracing"),
    }


def _response_from_ga(response: Json) -> Json:
    flat = {k: v for k, v in response.items() if k not in ("audio", "output_modalities")}
    output = (response.get("audio") or {}).get("output") or {}
    flat["modalities"] = _modalities(response.get("output_modalities"))
    flat["voice"] = output.get("voice")
    flat["output_audio_format"] = NAMES.get((output.get("format") or {}).get("type", ""), "pcm16")
    flat["temperature"] = response.get("temperature", TEMPERATURE)
    flat["output"] = [_item_from_ga(item) for item in response.get("output") or ()]
    return flat


def _response_to_ga(flat: Json, event_id: str | None) -> Json:
    moved = ("modalities", "voice", "speed", "output_audio_format", "max_response_output_tokens")
    response = {k: v for k, v in flat.items() if k not in moved}
    if flat.get("modalities") is not None:
        response["output_modalities"] = _output_modalities(flat["modalities"])
    if flat.get("max_response_output_tokens") is not None:
        response["max_output_tokens"] = flat["max_response_output_tokens"]
    if said := _output(flat, "response", event_id):
        response["audio"] = {"output": said}
    if flat.get("input") is not None:
        response["input"] = [_item_to_ga(item) for item in flat["input"]]
    return response


def _output(flat: Json, path: str, event_id: str | None) -> Json:
    said: Json = {name: flat[name] for name in ("voice", "speed") if flat.get(name) is not None}
    if flat.get("output_audio_format") is not None:
        said["format"] = _format(flat["output_audio_format"], f"{path}.output_audio_format", event_id)
    return said


def _format(name: str, param: str, event_id: str | None, rate: int | None = None) -> Json:
    if name not in FORMATS:
        known = ", ".join(f"'{n}'" for n in FORMATS)
        raise ProtocolError(
            f"Invalid value: '{name[:64]}'. Supported values are: {known}.",
            code="invalid_value",
            param=param,
            event_id=event_id,
        )
    return {"type": FORMATS[name], "rate": rate or 24_000} if name == "pcm16" else {"type": FORMATS[name]}


def _modalities(output: Any) -> list[str]:
    return ["text", "audio"] if "audio" in (output or ()) else ["text"]


def _output_modalities(names: list[str]) -> list[str]:
    """Audio always comes with its text. What is none of the beta's two goes on as it is, for the session to refuse."""
    return ["audio"] if sorted(names) == ["audio", "text"] else names


def _item_to_ga(item: Json) -> Json:
    if not item.get("content"):
        return item
    side = "output" if item.get("role") == "assistant" else "input"
    return {
        **item,
        "content": [
            {**part, "type": f"{side}_{part['type']}"} if part["type"] in ("text", "audio") else part
            for part in item["content"]
        ],
    }


def _item_from_ga(item: Json) -> Json:
    if not item.get("content"):
        return item
    return {**item, "content": [{**part, "type": PARTS.get(part["type"], part["type"])} for part in item["content"]]}


def _param(path: str) -> str:
    for ga, beta in PARAMS.items():
        if path == ga or path.startswith((f"{ga}.", f"{ga}[")):
            return beta + path[len(ga) :]
    return path
