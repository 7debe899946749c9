"""What the machine asks for, as requests of the graph: spans become audio, canonical JSON becomes types.

Raises ``pipelines.errors.Refused`` for what a client put into its conversation and this server cannot read.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from antiphon.codecs import base64
from antiphon.codecs.errors import CodecError
from antiphon.pipelines import requests as graph
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.stage import Listener
from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.languages import code_of
from antiphon.realtime.protocol.media import data_uri_bytes
from antiphon.realtime.shell import hearing
from antiphon.realtime.shell.store import AudioStore, content_key
from antiphon.session import request as session
from antiphon.session.request import Recognition, Request, Span


class Asking:
    """Builds the requests of one conversation. ``store`` owns the user's audio; ``info`` says what the pipeline can do."""

    def __init__(self, conversation: str, store: AudioStore, info: PipelineInfo) -> None:
        self._conversation = conversation
        self._store = store
        self._info = info
        self._media: dict[session.Part, graph.Part] = {}

    def answer(
        self,
        gen: str,
        request: Request,
        *,
        listener: Listener = "confirmed",
        kind: Literal["generate", "prepare"] = "generate",
        aside: bool = False,
    ) -> graph.GenerateRequest:
        """A chat request. An answer ``aside`` of the conversation has no part in its caches."""
        terminals = ("text", "audio") if request.modality == "audio" else ("text",)
        system = (graph.Message(role="system", parts=(graph.TextPart(request.instructions),)),)
        context = self._context(request, aside)
        return graph.GenerateRequest(
            id=gen,
            task="chat",
            terminals=terminals,
            messages=(system if request.instructions else ()) + context,
            conversation="" if aside else self._conversation,
            kind=kind,
            listener=listener,
            sampling=graph.Sampling(max_tokens=request.max_tokens, temperature=request.temperature),
            tools=_tools(request.tools),
            tool_choice=_tool_choice(request.tool_choice),
            parallel_tool_calls=request.parallel_tool_calls,
            voice=self.voice(request.voice, request.speed),
            transcription=_transcription(request.recognition),
        )

    def transcript(self, gen: str, span: Span, recognition: Recognition, *, listener: Listener) -> graph.GenerateRequest:
        """A transcription of a span."""
        return graph.GenerateRequest(
            id=gen,
            task="transcription",
            terminals=("transcript",),
            audio=self._store.part(span),
            conversation=self._conversation,
            listener=listener,
            transcription=_transcription(recognition),
        )

    def voice(self, name: str, speed: float) -> graph.Voice:
        """The client's voice if the pipeline has it, else its own: clients send names of voices that only OpenAI has. The
        speed likewise: an agent that talks at its own is better than one that fails at every turn."""
        return graph.Voice(name=self._info.voice(name) or "default", speed=speed if self._info.paced else 1.0)

    def _context(self, request: Request, aside: bool) -> tuple[graph.Message, ...]:
        """The recordings and pictures that a client put into its conversation stay read, as the next request will need them
        all again; what only an answer aside needs does not stay."""
        before = dict(self._media)
        context = tuple(self._entry(entry) for entry in request.context)
        used = {part for entry in request.context if isinstance(entry, session.Message) for part in entry.parts}
        self._media = before if aside else {part: read for part, read in self._media.items() if part in used}
        return context

    def _entry(self, entry: session.Entry) -> graph.Message:
        if isinstance(entry, session.Call):
            call = graph.ToolCall(call_id=entry.call_id, name=entry.name, arguments=entry.arguments)
            return graph.Message(role="assistant", calls=(call,))
        if isinstance(entry, session.CallOutput):
            return graph.Message(role="tool", parts=(graph.TextPart(entry.output),), call_id=entry.call_id)
        return graph.Message(role=entry.role, parts=tuple(self._part(part, entry.name) for part in entry.parts))

    def _part(self, part: session.Part, name: str) -> graph.Part:
        match part:
            case session.Text(text):
                return graph.TextPart(text)
            case session.Heard(span):
                return msgspec.structs.replace(self._store.part(span), name=name)
            case session.Clip() | session.Image():
                if part not in self._media:
                    self._media[part] = _clip(part) if isinstance(part, session.Clip) else _picture(part)
                return msgspec.structs.replace(self._media[part], name=name)


def _clip(clip: session.Clip) -> graph.AudioPart:
    """A client's own recording."""
    kind, rate = clip.format
    try:
        data = base64.decode(clip.audio)
    except CodecError as e:
        raise Refused(f"The audio of an item cannot be read: {e}.", code="invalid_value") from None
    raw = hearing.whole(data, {"type": kind, "rate": rate}).astype("<f4", copy=False).tobytes()
    return graph.AudioPart(data=raw, format=graph.PCM_F32_16K, key=content_key(raw), transcript=clip.transcript)


def _picture(image: session.Image) -> graph.ImagePart:
    data = _image(image.url)
    return graph.ImagePart(data=data, detail=image.detail, key=content_key(data))


def _image(url: str) -> bytes:
    try:
        return data_uri_bytes(url, param="image_url")
    except ProtocolError as e:
        raise Refused(str(e), code=e.code or "invalid_value", param=e.param) from None


def _tools(canonical: str) -> tuple[graph.Tool, ...]:
    tools = tuple(
        graph.Tool(name=t["name"], description=t.get("description") or "", parameters=t.get("parameters") or {})
        for t in json.loads(canonical)
        if t.get("type") == "function"
    )
    for tool in tools:
        try:
            msgspec.msgpack.encode(tool.parameters)
        except OverflowError:
            why = "its parameters hold an integer of more than 64 bits"
            raise Refused(f"The tool {tool.name!r} cannot be offered: {why}.", code="invalid_value", param="tools") from None
    return tools


def _tool_choice(canonical: str) -> graph.ToolChoice:
    choice = json.loads(canonical)
    if isinstance(choice, dict):
        return graph.ToolChoice("function", choice["name"])
    return graph.ToolChoice(choice)


def _transcription(recognition: Recognition) -> graph.Transcription:
    language = code_of(recognition.language) or recognition.language  # what is no language is for the transcriber to refuse
    return graph.Transcription(language=language, prompt=recognition.prompt, keywords=recognition.keywords)
