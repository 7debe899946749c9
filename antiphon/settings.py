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


class SettingsError(ValueError):
    """A setting that is unknown or has a wrong value; one line, naming it."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``antiphon serve`` runs with. ``antiphon serve --print-config`` prints it as the file would say it."""

    host: str = "127.0.0.1"
    port: int = 8000
    pipeline: Literal["", "local", "qwen3_omni"] = ""
    """Empty: what ``model`` needs, without one "local"."""
    model: str = ""
    """A checkpoint folder, for pipelines that take one."""
    preset: str = ""
    """Where the stages of a checkpoint run; empty: on the CPU."""
    thinker: str = "local"
    """"local", "weight:NAME", "gguf:PATH", "hf:REPO/FILE", or "openai:URL#MODEL"."""
    transcriber: str = "local"
    """"local" or "openai:URL#MODEL"."""
    talker: str = "local"
    """"local" or "openai:URL#MODEL"."""
    fallback: bool = False
    """A remote thinker that cannot be reached is replaced by the local one, for that request."""
    text_only: bool = False
    processes: Literal["split", "one", "apart"] = "split"
    """Models in a process of their own, everything in one, or every stage apart."""
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
    min_interruption_ms: int = 0
    resume_after_false_interruption: bool = False
    web_demo: bool = True
    ice_servers: tuple[str, ...] = ()
    public_address: str = ""
    udp_ports: str = ""
    """"FIRST-LAST" for WebRTC; empty: any."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    weights: dict[str, str] = {}
    """Weight name -> a folder of your own (a table in the file)."""


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
    for name, number in (("max_requests", settings.max_requests), ("max_sessions", settings.max_sessions)):
        if number < 1:
            raise SettingsError(f"{where}: {name} must be at least 1, not {number}")
    if not settings.window_s > 0:
        raise SettingsError(f"{where}: window_s must be more than 0, not {settings.window_s}")
    return settings


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
        if text is None or field.name == "weights":
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
        if name != "weights":
            lines.append(f"{name} = {_toml(value)}")
    lines += ["", "[weights]", *(f"{_toml(k)} = {_toml(v)}" for k, v in settings.weights.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return str(value)
