"""A chat answer in OpenAI's words: gathered whole, or as the deltas of a stream."""

from __future__ import annotations

import math
import time
import uuid
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs import base64, encode
from antiphon.pipelines.client import Event
from antiphon.pipelines.outputs import AUDIO_RATE, AudioDelta, CallDelta, TextDelta, TextResult
from antiphon.realtime.rest.off_loop import encoded
from antiphon.session.response import AUDIO_TOKENS_PER_S

Json = dict[str, Any]


class Answer:
    """What one generation has made so far. ``audio``: id and expiry of the spoken answer, or None."""

    def __init__(self, model: str, audio: tuple[str, int] | None, audio_format: str | None) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model
        self.audio = audio
        self.format = audio_format or ""
        self.text = ""
        self.calls: list[Json] = []
        self.samples = 0
        self.result = TextResult()
        self._sound: list[NDArray[np.float32]] = []
        self._encoder = encode.encoder(self.format, AUDIO_RATE) if audio else None

    # ---- whole
    def gather(self, event: Event) -> None:
        """The next event, for an answer in one piece."""
        self._note(event)
        if isinstance(event.data, AudioDelta):
            self._sound.append(event.data.pcm)

    def whole(self) -> Json:
        """The ``chat.completion`` object."""
        message: Json = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        if self.audio is None:
            message["content"] = self.text if self.text or not self.calls else None
        elif self.text or not self.calls:
            sound = np.concatenate(self._sound) if self._sound else np.zeros(0, dtype=np.float32)
            data = base64.encode(encode.whole(sound, self.format, AUDIO_RATE))
            identity, expires_at = self.audio
            message["audio"] = {"id": identity, "data": data, "expires_at": expires_at, "transcript": self.text}
        if self.calls:
            message["tool_calls"] = self.calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.result.finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage()}

    # ---- streamed
    def first_delta(self, event: Event) -> Json:
        """The delta that names the role. With tools, content is null rather than empty."""
        if self.audio is not None:
            return {"role": "assistant", "refusal": None, "audio": {"id": self.audio[0], "transcript": ""}}
        content = None if isinstance(event.data, CallDelta) else ""
        return {"role": "assistant", "content": content, "refusal": None}

    async def deltas(self, event: Event) -> list[Json]:
        """What the next event adds to the stream."""
        known = len(self.calls)
        self._note(event)
        match event.data:
            case TextDelta(text) if text:
                return [self._audio_delta(transcript=text) if self.audio else {"content": text}]
            case CallDelta() as call:
                return _call_deltas(call, new=len(self.calls) > known)
            case AudioDelta() as sound if self._encoder is not None:
                data = await encoded(self._encoder, sound.pcm)
                return [self._audio_delta(data=base64.encode(data))] if data else []
        if event.terminal == "audio" and event.last and self._encoder is not None:
            return self._end_audio(self._encoder.finish())
        return []

    def chunk(self, delta: Json, *, finish_reason: str | None = None, usage: bool = False) -> Json:
        """One ``chat.completion.chunk``; with ``usage`` asked for, all but the last carry null."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **({"usage": None} if usage else {})}

    def usage_chunk(self) -> Json:
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}

    def usage(self) -> Json:
        """Text by the model's tokenizer; speech made, by its samples: a token for 50 ms, as OpenAI counts it."""
        used = self.result.usage
        spoken = math.ceil(self.samples * AUDIO_TOKENS_PER_S / AUDIO_RATE)
        read = max(0, used.prompt_tokens - used.prompt_audio_tokens - used.prompt_image_tokens)
        return {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens + spoken,
            "total_tokens": used.prompt_tokens + used.completion_tokens + spoken,
            "prompt_tokens_details": {
                "cached_tokens": used.cached_tokens,
                "audio_tokens": used.prompt_audio_tokens,
                "text_tokens": read,
                "image_tokens": used.prompt_image_tokens,
            },
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": spoken,
                "text_tokens": used.completion_tokens,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    # ---- inside
    def _head(self, kind: Literal["chat.completion", "chat.completion.chunk"]) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "system_fingerprint": None}

    def _note(self, event: Event) -> None:
        match event.data:
            case TextDelta(text):
                self.text += text
            case CallDelta() as call:
                while len(self.calls) <= call.index:
                    self.calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                made = self.calls[call.index]
                made["id"] = call.call_id
                made["function"]["name"] = call.name
                made["function"]["arguments"] += call.arguments
            case AudioDelta(pcm):
                self.samples += len(pcm)
            case TextResult() as result:
                self.result = result

    def _audio_delta(self, **given: Any) -> Json:
        assert self.audio is not None  # only called where there is audio
        return {"audio": {"id": self.audio[0], **given}}

    def _end_audio(self, rest: bytes) -> list[Json]:
        assert self.audio is not None  # only called where there is audio
        tail = [self._audio_delta(data=base64.encode(rest))] if rest else []
        return [*tail, self._audio_delta(expires_at=self.audio[1])]


def _call_deltas(call: CallDelta, *, new: bool) -> list[Json]:
    deltas: list[Json] = []
    if new:
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": call.index, "id": call.call_id, "type": "function", "function": function}]})
    if call.arguments:
        deltas.append({"tool_calls": [{"index": call.index, "function": {"arguments": call.arguments}}]})
    return deltas
