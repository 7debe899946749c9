"""What an operator can set of the doors. Plain data: the command line and the settings file fill it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from antiphon.realtime.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every door. Sizes in bytes, times in seconds.

    ``api_keys``: empty lets everyone in.              ``cors_origins``: browsers' origins that may read REST answers.
    ``origins``: those that may open a WebSocket; empty lets all.       ``realtime``: whether /v1/realtime is served.
    ``max_body_bytes``: a JSON body (base64 audio in it).               ``max_upload_bytes``: an uploaded media file.
    ``max_speech_chars``: the input of one /v1/audio/speech.            ``audio_answer_s``: how long ``audio: {id}`` can
    be referred to.    ``send_timeout_s``: a client that takes nothing for so long is given up.
    ``web_demo``: the folder of the page to serve at /, or None.
    ``ice_servers``: "stun:HOST:PORT", "turn:USER:SECRET@HOST:PORT".    ``udp_ports``: "FIRST-LAST" for calls; "": any.
    ``public_address``: where callers see this server, if it stands behind a NAT that maps its UDP ports one to one.
    ``echo_canceller``: take the agent's own voice out of a caller's microphone; calls over WebRTC only (extra ``echo``).
    """

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ("*",)
    origins: tuple[str, ...] = ()
    realtime: bool = True
    limits: Limits = field(default_factory=Limits)
    max_body_bytes: int = 40 << 20
    max_upload_bytes: int = 25 << 20
    max_speech_chars: int = 4096
    audio_answer_s: float = 3600.0
    send_timeout_s: float = 60.0
    web_demo: Path | None = None
    ice_servers: tuple[str, ...] = ()
    udp_ports: str = ""
    public_address: str = ""
    echo_canceller: bool = False
