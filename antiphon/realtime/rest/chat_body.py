"""The body of ``POST /v1/chat/completions`` as the graph's request.

Accepted and ignored: frequency_penalty, presence_penalty, logit_bias, metadata, user, store, service_tier,
reasoning_effort, verbosity, prediction, stream_options.include_obfuscation, a function's ``strict``, and unknown fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from antiphon.codecs.encode import CONTENT_TYPES
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import (
    GenerateRequest,
    Message,
    Part,
    ResponseFormat,
    Sampling,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    Voice,
)
from antiphon.realtime.errors import NotServed
from antiphon.realtime.rest import media_parts, voices
from antiphon.realtime.rest.audio_answers import AudioAnswers
from antiphon.realtime.rest.fields import convert, free, invalid, missing
from antiphon.realtime.rest.sampling import Count, Penalty, Positive, Seed, Share, Stops, Temperature, by_stage, stops

Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
MEDIA_FIELDS = (
    "video_fps",
    "video_max_frames",
    "video_min_pixels",
    "video_max_pixels",
    "video_total_pixels",
    "use_audio_in_video",
)
ROLES = ("developer", "system", "user", "assistant", "tool")


class FunctionBody(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolBody(msgspec.Struct):
    function: FunctionBody
    type: str = "function"


class CalledBody(msgspec.Struct):
    name: str
    arguments: str


class CallBody(msgspec.Struct):
    id: str
    function: CalledBody


class AudioRef(msgspec.Struct):
    id: str


class MessageBody(msgspec.Struct):
    role: str
    content: str | list[Any] | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    audio: AudioRef | None = None


class AudioBody(msgspec.Struct):
    voice: Any = None
    format: str | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    messages: list[Any]
    model: str | None = None
    modalities: list[str] | None = None
    audio: AudioBody | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ToolBody] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    repetition_penalty: Penalty | None = None
    stop: Stops | None = None
    seed: Seed | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] | None = None
    stage_params: dict[str, dict[str, Any]] | None = None
    stage_sampling: dict[str, Any] | None = None
    images: list[str] | None = None
    audios: list[str] | None = None
    videos: list[str] | None = None
    video_fps: float | None = None
    video_max_frames: Size | None = None
    video_min_pixels: Size | None = None
    video_max_pixels: Size | None = None
    video_total_pixels: Size | None = None
    use_audio_in_video: bool | None = None
    request_id: str | None = None
    functions: Any = None
    function_call: Any = None


@dataclass(frozen=True)
class Chat:
    """What a chat door is asked. ``audio_format``: None without audio."""

    request: GenerateRequest
    stream: bool
    include_usage: bool
    audio_format: str | None


def read(body: ChatBody, info: PipelineInfo, request_id: str, answers: AudioAnswers, caller: str) -> Chat:
    """Raises ``BadRequest``, ``NotServed`` and ``NotFound``, each by the field's path."""
    _refuse_unserved(body)
    audio = _wants_audio(body, info)
    stream = bool(body.stream)
    voice, audio_format = _audio_out(body, info) if audio else (Voice(), None)
    tools = tuple(_tool(tool, n) for n, tool in enumerate(body.tools or ()))
    request = GenerateRequest(
        id=request_id,
        task="chat",
        terminals=("text", "audio") if audio else ("text",),
        messages=with_media(_messages(body.messages, info, answers, caller), body, info),
        listener="confirmed" if stream else "none",
        sampling=_sampling(body),
        tools=tools,
        tool_choice=_tool_choice(body.tool_choice, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=_response_format(body.response_format),
        voice=voice,
        stage_params=_stage_params(body),
        stage_sampling=by_stage(body.stage_sampling),
    )
    options = body.stream_options
    return Chat(request, stream, bool(options and options.include_usage), audio_format)


def _stage_params(body: ChatBody) -> dict[str, dict[str, Any]]:
    """With how media are to be read, which a request may also say beside its media."""
    given = free(body.stage_params, "stage_params")
    media = {name: value for name in MEDIA_FIELDS if (value := getattr(body, name)) is not None}
    return {**given, "media": {**media, **given.get("media", {})}} if media else given


def _refuse_unserved(body: ChatBody) -> None:
    if body.n not in (None, 1):
        raise invalid("n", "only one answer a request is supported (n = 1)", "unsupported_value")
    if body.logprobs:
        raise invalid("logprobs", "log probabilities are not supported", "unsupported_value")
    if body.functions is not None or body.function_call is not None:
        name = "functions" if body.functions is not None else "function_call"
        raise invalid(name, "the old function fields are not supported; use tools and tool_choice", "unsupported_value")


def _wants_audio(body: ChatBody, info: PipelineInfo) -> bool:
    modalities = ["text"] if body.modalities is None else body.modalities
    for n, modality in enumerate(modalities):
        if modality not in ("text", "audio"):
            raise invalid(f"modalities[{n}]", f"{modality[:64]!r} is not one of text, audio")
    if not modalities:
        raise invalid("modalities", "at least one of text, audio is needed")
    if "audio" not in modalities:
        return False
    if "audio" not in info.terminals.get("chat", ()):
        raise NotServed(f"The running pipeline '{info.name}' gives no audio for chat, only text.", param="modalities")
    return True


def _audio_out(body: ChatBody, info: PipelineInfo) -> tuple[Voice, str]:
    if body.audio is None:
        raise missing("audio")
    if body.audio.format is None:
        raise missing("audio.format")
    if body.audio.format not in (*CONTENT_TYPES, "pcm16"):
        known = ", ".join(name if name != "pcm" else "pcm16" for name in CONTENT_TYPES)
        raise invalid("audio.format", f"{body.audio.format[:64]!r} is not one of {known}", "unsupported_value")
    return voices.choose(info, body.audio.voice, "audio.voice"), body.audio.format


def _messages(given: list[Any], info: PipelineInfo, answers: AudioAnswers, caller: str) -> tuple[Message, ...]:
    if not given:
        raise invalid("messages", "at least one message is needed")
    messages, called = [], set[str]()
    for n, item in enumerate(given):
        path = f"messages[{n}]"
        message = convert(item, MessageBody, path)
        if message.role not in ROLES:
            raise invalid(f"{path}.role", f"{message.role[:64]!r} is not one of {', '.join(ROLES)}")
        parts = _parts(message, path, info)
        calls = tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ())
        if message.role == "assistant":
            called |= {call.call_id for call in calls}
            if message.audio is not None:
                parts = (*parts, TextPart(answers.transcript(message.audio.id, caller, f"{path}.audio.id")))
            if message.content is None and not parts and not calls:
                raise missing(f"{path}.content")
        elif message.role == "tool":
            if message.tool_call_id is None:
                raise missing(f"{path}.tool_call_id")
            if message.tool_call_id not in called:
                raise invalid(f"{path}.tool_call_id", "no earlier assistant message made this call", "invalid_tool_call_id")
        elif message.content is None:
            raise missing(f"{path}.content")
        role: Any = message.role
        messages.append(Message(role=role, parts=parts, calls=calls, call_id=message.tool_call_id or ""))
    return tuple(messages)


def with_media(messages: tuple[Message, ...], body: ChatBody, info: PipelineInfo) -> tuple[Message, ...]:
    """Top-level ``images``, ``audios``, ``videos`` stand before what the last user message says."""
    given = [
        media_parts.top_level(info, kind, item, f"{name}[{n}]")
        for kind, name, items in (
            ("image_url", "images", body.images),
            ("input_audio", "audios", body.audios),
            ("video_url", "videos", body.videos),
        )
        for n, item in enumerate(items or ())
    ]
    if not given:
        return messages
    last = max((n for n, message in enumerate(messages) if message.role == "user"), default=None)
    if last is None:
        raise invalid("messages", "media need a user message to stand in")
    user = msgspec.structs.replace(messages[last], parts=(*given, *messages[last].parts))
    return (*messages[:last], user, *messages[last + 1 :])


def _parts(message: MessageBody, path: str, info: PipelineInfo) -> tuple[Part, ...]:
    if message.content is None:
        return ()
    if isinstance(message.content, str):
        return (TextPart(message.content),) if message.content or message.role != "assistant" else ()
    return tuple(media_parts.part(info, part, f"{path}.content[{n}]") for n, part in enumerate(message.content))


def _sampling(body: ChatBody) -> Sampling:
    return Sampling(
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        stop=stops(body.stop),
        repetition_penalty=body.repetition_penalty,
    )


def _tool(tool: ToolBody, n: int) -> Tool:
    if tool.type != "function":
        raise invalid(f"tools[{n}].type", f"{tool.type[:64]!r} tools are not supported, only 'function'", "unsupported_value")
    function = tool.function
    parameters = free(function.parameters, f"tools[{n}].function.parameters")
    return Tool(name=function.name, description=function.description or "", parameters=parameters)


def _tool_choice(given: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    mode: Literal["auto", "none", "required", "function"]
    match given:
        case None | "auto":
            return ToolChoice()
        case "none" | "required" as mode:
            if mode == "required" and not tools:
                raise invalid("tool_choice", "'required' needs tools")
            return ToolChoice(mode)
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in {tool.name for tool in tools}:
                raise invalid("tool_choice.function.name", f"there is no tool {name[:64]!r}")
            return ToolChoice("function", name)
        case {"type": str(kind)} if kind != "function":
            raise invalid("tool_choice.type", f"{kind[:64]!r} is not supported, only 'function'", "unsupported_value")
    raise invalid("tool_choice", "expected 'auto', 'none', 'required' or a function by name")


def _response_format(given: dict[str, Any] | None) -> ResponseFormat:
    if given is None:
        return ResponseFormat()
    match given.get("type"):
        case "text" | "json_object" as kind:
            return ResponseFormat(kind)
        case "json_schema":
            named = given.get("json_schema")
            schema = named.get("schema") if isinstance(named, dict) else None
            if not isinstance(schema, dict):
                raise missing("response_format.json_schema.schema")
            return ResponseFormat("json_schema", free(schema, "response_format.json_schema.schema"))
        case None:
            raise missing("response_format.type")
        case kind:
            raise invalid("response_format.type", f"{str(kind)[:64]!r} is not one of text, json_object, json_schema")
