"""The CPU voice as a graph.

    preprocessing -+-> transcriber (terminal: transcript) -> thinker -> decode   (terminal: text)
                   `-> segmenter -> talker -> code2wav (terminal: audio)   ^-- the thinker streams to both

Lanes: ``front`` decodes files, ``mind`` reads and thinks, ``voice`` speaks. Every role can be played by a remote server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.local import thinker_model
from antiphon.pipelines.local.prepared import last_transcript, merge_transcripts
from antiphon.pipelines.local.voices import VOICES, check_voice
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Sampling, TextPart
from antiphon.pipelines.stage import CLIENT, Request

HERE = "antiphon.pipelines.local"
TOKEN_CREDITS = 4096
"""A whole answer: the Thinker never waits for the voice."""
MINDS = 32
"""Answers thought at once; more wait their turn."""
PATIENCE_MS = 2500.0
"""A remote thinker's stream that stalls is cut where it stands after this."""
LOCAL_PATIENCE_MS = 30_000.0
"""The local thinker never stalls, it is only slow while many ask. Clauses are cut by the text alone: an answer is spoken the
same on a busy machine and on an idle one."""
CONTEXT_TOKENS = 4096
CONVERSATION_TOKENS = 2048
"""A CPU reads about a hundred tokens a second: the half that a conversation keeps when its context is full takes it ten."""
DEFAULT_THINKER = thinker_model.DEFAULT
DEFAULT_WEIGHTS = {
    "transcriber": "whisper-base-ct2",
    "thinker": thinker_model.DEFAULT,
    "talker": "hibari-heart",
}
"""Role -> the named weight that plays it here."""


@dataclass(frozen=True)
class Remote:
    """``openai:URL#MODEL``: a role played by an OpenAI-compatible server."""

    url: str
    model: str


def parse_role(role: str, value: str) -> Remote | str | None:
    """None for "local", a Remote, or a spec of a local model as it is (thinker only). Raises ConfigError naming the flag."""
    if value in ("", "local"):
        return None
    if value.startswith("openai:"):
        url, _, model = value.removeprefix("openai:").partition("#")
        if not url.startswith(("http://", "https://")) or not model:
            raise ConfigError(f"--{role} {value!r}: write openai:http://HOST:PORT/v1#MODEL")
        return Remote(url, model)
    if role == "thinker" and value.startswith(("gguf:", "hf:", "weight:")):
        return value
    known = '"local", "openai:URL#MODEL"' + (', "weight:NAME", "gguf:PATH" or "hf:REPO/FILE"' if role == "thinker" else "")
    raise ConfigError(f"--{role} {value!r} is not known; it can be {known}")


def route_entry(request: Request) -> Sequence[str]:
    """Where the prepared request goes: pure, known at submit."""
    body: GenerateRequest = request.body
    if body.task == "speech":
        return ("segmenter",)
    if body.task == "transcription":
        return ("transcriber",)
    heard = any(isinstance(part, AudioPart) for message in body.messages for part in message.parts)
    return ("transcriber", "thinker") if heard else ("thinker",)


def route_entry_text_only(request: Request) -> Sequence[str]:
    return tuple(name for name in route_entry(request) if name != "segmenter")


SAMPLED = {"thinker": frozenset(Sampling.__struct_fields__), "talker": frozenset(("seed",))}
"""Stages that ``stage_sampling`` may name, and what each reads. (The voice draws noise, nothing else.)"""


def check_local(request: Request) -> None:
    """Refuse by name what no stage should see."""
    if "audio" in request.terminals:
        check_voice(request.body.voice)
    check_media(request)


def check_media(request: Request) -> None:
    """Images and videos are refused by name, and sampling of what does not sample. (A remote voice has names and languages of
    its own: they are not checked.)"""
    body: GenerateRequest = request.body
    for stage, asked in body.stage_sampling.items():
        known = SAMPLED.get(stage)
        if known is None:
            raise Refused(f"stage_sampling.{stage}: the stages that sample are {', '.join(SAMPLED)}", param="stage_sampling")
        if unknown := sorted(asked.said().keys() - known):
            raise Refused(f"stage_sampling.{stage}.{unknown[0]} is not read by this model", param="stage_sampling")
    for message in body.messages:
        for part in message.parts:
            if not isinstance(part, AudioPart | TextPart):
                kind = type(part).__name__.removesuffix("Part").lower()
                raise Refused(f"the local pipeline cannot read {kind} input", code="unsupported_value", param="messages")


def build(
    *,
    thinker: str = "local",
    transcriber: str = "local",
    talker: str = "local",
    fallback: bool = False,
    text_only: bool = False,
) -> PipelineConfig:
    """The declaration. ``text_only`` leaves the voice out: it is never loaded. Raises ConfigError naming the flag."""
    roles = {
        "transcriber": parse_role("transcriber", transcriber),
        "thinker": parse_role("thinker", thinker),
        "talker": parse_role("talker", talker),
    }
    stages = [
        StageConfig(
            name="preprocessing",
            lane="front",
            factory=f"{HERE}.preprocessing:Preprocessing",
            next=("transcriber", "thinker") if text_only else ("transcriber", "thinker", "segmenter"),
            route_fn=route_entry_text_only if text_only else route_entry,
            max_open=64,
            max_batch=1,
        ),
        _transcriber(roles["transcriber"]),
        _thinker(roles["thinker"], fallback, text_only),
        StageConfig(
            name="decode", lane="mind", factory=f"{HERE}.decode:Decode", terminal="text", max_open=64, credits=TOKEN_CREDITS
        ),
    ]
    if not text_only:
        stages += _voice(roles["talker"], PATIENCE_MS if isinstance(roles["thinker"], Remote) else LOCAL_PATIENCE_MS)
    remote_voice = isinstance(roles["talker"], Remote)
    terminals = ("text", "transcript") if text_only else ("text", "audio", "transcript")
    info = PipelineInfo(
        name="local",
        model="antiphon-local",
        models={role: _model_name(role, spec) for role, spec in roles.items() if not (text_only and role == "talker")},
        terminals={
            "chat": terminals,
            "transcription": ("transcript",),
            **({} if text_only else {"speech": ("audio",)}),
        },
        inputs={"chat": ("text", "audio"), "transcription": ("audio",), "speech": ("text",)},
        voices=() if text_only else VOICES,
        languages=() if text_only or remote_voice else ("en",),
        early_responses=True,
        context_tokens=0 if isinstance(roles["thinker"], Remote) else CONTEXT_TOKENS,
        conversation_tokens=0 if isinstance(roles["thinker"], Remote) else CONVERSATION_TOKENS,
    )
    return PipelineConfig("local", "preprocessing", stages, info=info, check=check_media if remote_voice else check_local)


def _model_name(role: str, spec: Remote | str | None) -> str:
    if isinstance(spec, Remote):
        return spec.model
    if spec is not None:
        return spec.removeprefix("weight:").rsplit("/", 1)[-1]
    return {"transcriber": "whisper-base", "thinker": DEFAULT_THINKER, "talker": "hibari-heart"}[role]


def _transcriber(spec: Remote | str | None) -> StageConfig:
    fields: dict[str, Any] = {
        "next": ("thinker",),
        "terminal": "transcript",
        "project_payload": {CLIENT: last_transcript},
    }
    if isinstance(spec, Remote):
        return StageConfig(
            name="transcriber",
            lane="remote_ears",
            factory="antiphon.pipelines.engines.openai.transcriber:OpenAITranscriber",
            factory_args={"url": spec.url, "model": spec.model},
            max_open=64,
            **fields,
        )
    return StageConfig(
        name="transcriber", lane="mind", factory=f"{HERE}.transcriber:Transcriber", max_open=64, max_batch=4, **fields
    )


def _thinker(spec: Remote | str | None, fallback: bool, text_only: bool) -> StageConfig:
    fields: dict[str, Any] = {
        "stream_to": ("decode",) if text_only else ("decode", "segmenter"),
        "merge_fn": merge_transcripts,
        "credits": TOKEN_CREDITS,
        "prepares": True,
    }
    if isinstance(spec, Remote):
        return StageConfig(
            name="thinker",
            lane="remote_mind",
            factory="antiphon.pipelines.engines.openai.thinker:OpenAIThinker",
            factory_args={"url": spec.url, "model": spec.model, "fallback": fallback},
            max_open=64,
            **fields,
        )
    return StageConfig(
        name="thinker",
        lane="mind",
        factory=f"{HERE}.thinker_factory:make_thinker",
        factory_args={"model": spec or "", "context": CONTEXT_TOKENS},
        max_open=16,
        max_batch=16,
        **fields,
    )


def _voice(spec: Remote | str | None, patience_ms: float) -> list[StageConfig]:
    if isinstance(spec, Remote):
        segmenter = StageConfig(
            name="segmenter",
            lane="voice",
            factory=f"{HERE}.segmenter:Segmenter",
            factory_args={"patience_ms": patience_ms, "any_voice": True},
            stream_to=("talker",),
            max_open=64,
            credits=4,
        )
        talker = StageConfig(
            name="talker",
            lane="remote_voice",
            factory="antiphon.pipelines.engines.openai.talker:OpenAITalker",
            factory_args={"url": spec.url, "model": spec.model},
            start_on={"segmenter": 1},
            terminal="audio",
            max_open=64,
            credits=8,
        )
        return [segmenter, talker]
    return [
        StageConfig(
            name="segmenter",
            lane="voice",
            factory=f"{HERE}.segmenter:Segmenter",
            factory_args={"patience_ms": patience_ms},
            stream_to=("talker",),
            max_open=64,
            credits=4,
        ),
        StageConfig(
            name="talker",
            lane="voice",
            factory=f"{HERE}.talker:Talker",
            stream_to=("code2wav",),
            start_on={"segmenter": 1},
            max_open=32,
            max_batch=1,
            credits=1,
        ),
        StageConfig(
            name="code2wav",
            lane="voice",
            factory=f"{HERE}.code2wav:Code2Wav",
            start_on={"talker": 1},
            terminal="audio",
            max_open=32,
            max_batch=4,
            credits=8,
        ),
    ]
