"""GA events of the machine, made ready for a wire: audio as base64 in the promised format, an event_id on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from antiphon.realtime.protocol.wire import MAX_OUT
from antiphon.realtime.shell import saying
from antiphon.realtime.shell.saying import Saying
from antiphon.realtime.shell.store import AudioStore
from antiphon.session.events import IN_RATE, InputAudio, Json


class Finisher:
    """One connection's events, in order.

    ``session`` gives the effective GA session; ``new_id`` makes ids by kind. The audio of a response keeps the format
    that its ``response.created`` named, whatever ``session.update`` says meanwhile.
    """

    def __init__(self, store: AudioStore, session: Callable[[], Json], new_id: Callable[[str], str]) -> None:
        self._store = store
        self._session = session
        self._new_id = new_id
        self._formats: dict[str, Mapping[str, Any]] = {}
        self._streams: dict[str, Saying] = {}
        self._hushed = False

    def finish(self, event: Json) -> list[Json]:
        """None, one or two events to send in place of this one."""
        kind = event["type"]
        out = [event]
        if kind == "response.output_audio.delta":
            text = self._stream(event).feed(event["delta"])
            out = [{**event, "delta": text}] if text else []
        elif kind == "response.output_audio.done":
            out = self._tail(event)
        elif kind == "response.created":
            self._hushed = False
            promised = (event["response"].get("audio") or {}).get("output") or {}
            self._formats[event["response"]["id"]] = promised.get("format") or self._session_format("output")
        elif kind == "response.done":
            self._formats.pop(event["response"]["id"], None)
        elif kind == "input_audio_buffer.speech_started":
            detection = self._session()["audio"]["input"]["turn_detection"]
            self._hushed = bool(detection and detection["interrupt_response"])
        elif kind == "conversation.item.retrieved":
            out = [{**event, "item": self._with_audio(event["item"])}]
        return [{**e, "event_id": self._new_id("event")} for e in out]

    def _stream(self, event: Json) -> Saying:
        item = event["item_id"]
        if item not in self._streams:
            self._streams[item] = Saying(self._formats.get(event["response_id"]) or self._session_format("output"))
        return self._streams[item]

    def _tail(self, done: Json) -> list[Json]:
        """What the output filter still holds goes before the end; not after an interruption, where nothing may sound."""
        stream = self._streams.pop(done["item_id"], None)
        if stream is None or self._hushed or not (text := stream.finish()):
            return [done]
        return [{**done, "type": "response.output_audio.delta", "delta": text}, done]

    def _with_audio(self, item: Json) -> Json:
        """The user's samples in the session's input format, as long as the frame stays small enough for every client."""
        content = []
        room = MAX_OUT * 3 // 4
        for part in item.get("content") or ():
            if isinstance(part.get("audio"), InputAudio):
                part = dict(part)
                samples = self._store.samples(part.pop("audio").span)
                audio_format = self._session_format("input")
                text = saying.whole(samples, audio_format, IN_RATE)
                if len(text) <= room:
                    room -= len(text)
                    part["audio"] = text
            content.append(part)
        return {**item, "content": content} if content else item

    def _session_format(self, side: str) -> Mapping[str, Any]:
        audio_format: Mapping[str, Any] = self._session()["audio"][side]["format"]
        return audio_format
