"""Every setting of a server, in one flat object: file < environment ``ANTIPHON_*`` < flags.

The file is TOML with the names below. In the environment a name is upper case and lists are comma-separated.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

TABLES = ("weights", "process", "stage")
"""What is a table in the file and nothing in the environment."""


class SettingsError(ValueError):
    """A setting that is unknown or has a wrong value; one line, naming it."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process group (``[process.NAME]`` in the file); what is not said there is as for all."""

    replicas: int | None = None
    threads: int | None = None
    env: dict[str, str] = {}
    step_limit_s: float | None = None
    """A step that takes longer has its process killed and started again."""
    start_limit_s: float | None = None
    """For loading and warming up."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``antiphon serve`` runs with. ``antiphon serve --print-config`` prints it as the file would say it."""

    host: str = "127.0.0.1"
    port: int = 8000
    pipeline: Literal["", "local", "qwen3_omni"] = ""
    """Empty: what ``model`` needs, without one "local"."""
    model: str = ""
    """A checkpoint folder, for pipelines that take one."""
    preset: str = ""
    """Where the stages of a checkpoint run; empty: on the GPUs that are here, else on the CPU."""
    thinker: str = "local"
    """"local", "weight:NAME", "gguf:PATH", "hf:REPO/FILE", or "openai:URL#MODEL"; with a checkpoint "local", "sglang" (its
    engine in the model's process), or "openai:URL#MODEL" (a running SGLang server)."""
    transcriber: str = "local"
    """"local" or "openai:URL#MODEL"."""
    talker: str = "local"
    """"local" or "openai:URL#MODEL"."""
    fallback: bool = False
    """A remote thinker that cannot be reached is replaced by the local one, for that request."""
    text_only: bool = False
    processes: Literal["split", "one", "apart"] = "split"
    """Models in a process of their own, everything in one, or every stage apart."""
    replicas: int = 1
    """So many of each model process, on this machine: each holds weights of its own."""
    threads: int = 1
    """Of each model in a model process."""
    api_keys: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    realtime: bool = True
    cors_origins: tuple[str, ...] = ("*",)
    origins: tuple[str, ...] = ()
    """Browser origins that may open a WebSocket or a call; empty: all."""
    max_requests: int = 64
    max_sessions: int = 64
    max_sessions_per_key: int = 0
    """0: no bound of its own."""
    responses_per_minute: int = 0
    early_responses: Literal["auto", "on", "off"] = "auto"
    """Answer before the turn is certainly over. "auto": unless the thinker is remote, since that may cost money."""
    early_transcripts: bool = True
    """Read the turn before it is certainly over."""
    partial_transcripts: bool = True
    """Transcripts while the user speaks."""
    window_s: float = 4.0
    """How far audio may be sent ahead of what has been heard; inf: as fast as it is made."""
    conversation_tokens: int = 0
    """What a conversation keeps for the model beside its instructions; the oldest turns go. 0: what suits the pipeline."""
    min_interruption_ms: int = 0
    resume_after_false_interruption: bool = False
    web_demo: bool = True
    ice_servers: tuple[str, ...] = ()
    public_address: str = ""
    udp_ports: str = ""
    """"FIRST-LAST" for WebRTC; empty: any."""
    echo_canceller: bool = False
    """Take the agent's own voice out of a caller's microphone: WebRTC calls only, for callers without a canceller."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    weights: dict[str, str] = {}
    """Weight name -> a folder of your own (a table in the file)."""
    process: dict[str, ProcessSettings] = {}
    """Process group -> what differs for it (tables in the file)."""
    stage: dict[str, dict[str, Any]] = {}
    """Stage of a checkpoint's pipeline -> its own arguments (tables in the file)."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> ServerSettings:
    """Merge the three sources. Raises SettingsError naming the setting and where it came from."""
    merged: dict[str, Any] = {}
    if file is not None:
        merged.update(_from_file(file))
    merged.update(_from_environment(os.environ if environment is None else environment))
    merged.update({k: v for k, v in (flags or {}).items() if v is not None})
    return _convert(merged, "settings")


def _convert(values: Mapping[str, Any], where: str) -> ServerSettings:
    try:
        settings = msgspec.convert(dict(values), ServerSettings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}") from error
    if not 0 <= settings.port <= 65535:
        raise SettingsError(f"{where}: port {settings.port} is not between 0 and 65535")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError(f"{where}: tls_cert and tls_key go together")
    for name in ("max_requests", "max_sessions", "replicas", "threads"):
        if getattr(settings, name) < 1:
            raise SettingsError(f"{where}: {name} must be at least 1, not {getattr(settings, name)}")
    _check_processes(settings, where)
    if settings.conversation_tokens < 0:
        raise SettingsError(f"{where}: conversation_tokens must not be negative, not {settings.conversation_tokens}")
    if not settings.window_s > 0:
        raise SettingsError(f"{where}: window_s must be more than 0, not {settings.window_s}")
    return settings


def _check_processes(settings: ServerSettings, where: str) -> None:
    """What can be said without knowing the pipeline; whether it has such a process is the pipeline's to say."""
    for name, options in settings.process.items():
        for setting in ("replicas", "threads", "step_limit_s", "start_limit_s"):
            value = getattr(options, setting)
            if value is not None and not value > 0:
                raise SettingsError(f"{where}: process.{name}.{setting} must be more than 0, not {value}")
        for variable in options.env:
            if not variable or "=" in variable or "\0" in variable + options.env[variable]:
                raise SettingsError(f"{where}: process.{name}.env: {variable!r} cannot be a variable of the environment")
    if settings.processes == "one":
        for name in ("replicas", "threads"):
            if getattr(settings, name) > 1:
                raise SettingsError(f'{where}: {name} = {getattr(settings, name)} needs model processes: processes is "one"')


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from error
    _convert(values, str(file))
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Only names of settings: the environment holds other ANTIPHON_ variables (caches, tests)."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(ServerSettings):
        text = environment.get(f"ANTIPHON_{field.name.upper()}")
        if text is None or field.name in TABLES:
            continue
        if field.type == tuple[str, ...]:
            values[field.name] = [part.strip() for part in text.split(",") if part.strip()]
        elif field.type is bool:
            values[field.name] = text.strip().lower() in ("1", "true", "yes", "on")
        else:
            values[field.name] = text
    return values


def as_toml(settings: ServerSettings) -> str:
    """The effective settings as a file would say them; keys are not shown."""
    lines = []
    for name, value in msgspec.structs.asdict(settings).items():
        if name == "api_keys":
            value = tuple("..." for _ in value)
        if name not in TABLES:
            lines.append(f"{name} = {_toml(value)}")
    lines += ["", "[weights]", *(f"{_key(k)} = {_toml(v)}" for k, v in settings.weights.items())]
    for name, options in settings.process.items():
        said = {k: v for k, v in msgspec.structs.asdict(options).items() if v is not None and v != {}}
        lines += ["", f"[process.{_key(name)}]", *(f"{k} = {_toml(v)}" for k, v in said.items())]
    for name, arguments in settings.stage.items():
        lines += ["", f"[stage.{_key(name)}]", *(f"{k} = {_toml(v)}" for k, v in arguments.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return str(value)
