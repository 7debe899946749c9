"""``antiphon serve``: one server, from settings to SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from starlette.applications import Starlette

from antiphon.cli import backend
from antiphon.cli.console import fail
from antiphon.pipelines.errors import ConfigError, PipelineError
from antiphon.realtime import sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.limits import Limits
from antiphon.realtime.settings import Settings
from antiphon.realtime.tracing import JsonFormatter
from antiphon.realtime.webrtc import echo
from antiphon.realtime.webrtc.addresses import ice_server, port_range
from antiphon.session.features import Features
from antiphon.settings import ServerSettings, as_toml, load

Flag = typer.Option

DESCRIPTORS = 1 << 16


def serve(
    host: Annotated[str | None, Flag(help="Address to listen on.")] = None,
    port: Annotated[int | None, Flag(help="Port; 0 takes a free one.")] = None,
    pipeline: Annotated[str | None, Flag(help='"local" or "qwen3_omni".')] = None,
    model: Annotated[str | None, Flag(help="A checkpoint folder, for pipelines that take one.")] = None,
    preset: Annotated[str | None, Flag(help="Where the stages of a checkpoint run.")] = None,
    thinker: Annotated[
        str | None,
        Flag(
            help='"local", "weight:NAME", "gguf:PATH", "hf:REPO/FILE" or "openai:URL#MODEL". '
            'With --model: "local", "sglang" or "openai:URL#MODEL" of a running SGLang server.'
        ),
    ] = None,
    transcriber: Annotated[str | None, Flag(help='"local" or "openai:URL#MODEL".')] = None,
    talker: Annotated[str | None, Flag(help='"local" or "openai:URL#MODEL".')] = None,
    text_only: Annotated[bool | None, Flag("--text-only", help="Never load the voice.")] = None,
    processes: Annotated[str | None, Flag(help='"split" (models apart from the door), "one", "apart" (each stage).')] = None,
    replicas: Annotated[int | None, Flag(help="So many of each model process.")] = None,
    threads: Annotated[int | None, Flag(help="Of each model in a model process.")] = None,
    api_key: Annotated[list[str] | None, Flag(help="A key that lets a client in; may be given again.")] = None,
    tls_cert: Annotated[str | None, Flag(help="PEM file.")] = None,
    tls_key: Annotated[str | None, Flag(help="PEM file.")] = None,
    no_realtime: Annotated[bool | None, Flag("--no-realtime", help="REST only.")] = None,
    early_responses: Annotated[str | None, Flag(help='Answer before the turn is over: "auto", "on" or "off".')] = None,
    no_early_transcripts: Annotated[bool | None, Flag("--no-early-transcripts", help="Read a turn at its end.")] = None,
    max_sessions: Annotated[int | None, Flag(help="Conversations at once.")] = None,
    log_level: Annotated[str | None, Flag(help="debug, info, warning or error.")] = None,
    config: Annotated[Path | None, Flag(help="A settings file (TOML).")] = None,
    print_config: Annotated[bool, Flag("--print-config", help="Print the effective settings and exit.")] = False,
) -> None:
    """Serve OpenAI Realtime, chat, speech, transcription and the web page."""
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "pipeline": pipeline,
        "model": model,
        "preset": preset,
        "thinker": thinker,
        "transcriber": transcriber,
        "talker": talker,
        "text_only": text_only,
        "processes": processes,
        "replicas": replicas,
        "threads": threads,
        "api_keys": tuple(api_key) if api_key else None,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "realtime": False if no_realtime else None,
        "early_responses": early_responses,
        "early_transcripts": False if no_early_transcripts else None,
        "max_sessions": max_sessions,
        "log_level": log_level,
    }
    settings = load(config, None, flags)
    if print_config:
        print(as_toml(settings), end="")
        return
    run(settings)


def run(settings: ServerSettings) -> None:
    """Serve until told to end. Exits 1 with one line when the pipeline or the port cannot be had."""
    set_up_logging(settings)
    more_descriptors()
    make_client = backend.client_factory(settings)
    check_certificate(settings)
    listening = listen(settings)
    backend.fetch(backend.needed_weights(settings))
    failures: list[PipelineError] = []
    with backend.ears(settings) as open_ear:
        app, server = make_server(settings, make_client, open_ear, failures, listening)
        del app
        begin_listening(listening, settings)
        hang_up_is_the_end(server)
        asyncio.run(server.serve(sockets=[listening]))
    if failures:
        fail(str(failures[0]))


def make_server(
    settings: ServerSettings,
    make_client: Callable[[], Any],
    open_ear: Any,
    failures: list[PipelineError],
    listening: socket.socket,
) -> tuple[Starlette, sockets.Server]:
    """The application and what serves it; ``failures`` gets what kept the pipeline from starting."""
    scheme = "https" if settings.tls_cert else "http"
    host, port = listening.getsockname()[:2]

    def started(error: PipelineError | None) -> None:
        if error is not None:
            failures.append(error)
            server.should_exit = True
            return
        print(f"Antiphon is ready at {scheme}://{host}:{port}", file=sys.stderr, flush=True)

    app = create_app(
        door_settings(settings),
        make_client,
        open_ear=open_ear,
        features=features(settings),
        progress=lambda lane: logging.getLogger("antiphon.server").info("lane %s is warm", lane),
        on_started=started,
    )
    tls: dict[str, Any] = {}
    if settings.tls_cert:
        tls = {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}
    config = sockets.config(app, log_config=None, access_log=False, timeout_graceful_shutdown=15, **tls)
    server = sockets.Server(config, app.state.doors.drain)
    return app, server


def listen(settings: ServerSettings) -> socket.socket:
    """The socket, bound; it listens when there is a server behind it. Exits 1 naming the port when it is in use."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        cannot_listen(listening, settings, error)
    listening.set_inheritable(False)
    return listening


def begin_listening(listening: socket.socket, settings: ServerSettings) -> None:
    """Two servers may bind one port before either listens: the second to do so is told here. Exits 1 like ``listen``."""
    try:
        listening.listen(sockets.BACKLOG)
    except OSError as error:
        cannot_listen(listening, settings, error)


def cannot_listen(listening: socket.socket, settings: ServerSettings, error: OSError) -> NoReturn:
    listening.close()
    other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
    fail(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another with {other}")


def check_certificate(settings: ServerSettings) -> None:
    """Raises ConfigError naming the files when they cannot be used; nothing is asked at the terminal."""
    if not settings.tls_cert:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: "")
    except OSError as error:  # an SSLError is one
        reason = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else "not a PEM certificate and its key"
        files = f"{settings.tls_cert!r} and tls_key {settings.tls_key!r}"
        raise ConfigError(f"settings: tls_cert {files} cannot be used: {reason}") from None


def more_descriptors() -> None:
    """As many as the system lets this process have: the usual first limit of 1024 is for programs that use select()."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # not on this system
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def hang_up_is_the_end(server: sockets.Server) -> None:
    """A terminal that closes ends its server like SIGTERM, in order. Where SIGHUP is ignored (nohup) it stays so."""
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, server.handle_exit)


def door_settings(settings: ServerSettings) -> Settings:
    """What the doors get of the server's settings. Raises ConfigError naming a wrong one."""
    try:
        port_range(settings.udp_ports)
        for url in settings.ice_servers:
            ice_server(url)
    except ValueError as error:
        raise ConfigError(f"settings: {error}") from None
    if settings.echo_canceller and not echo.installed():
        raise ConfigError("settings: echo_canceller needs livekit: pip install 'antiphon[echo]'")
    return Settings(
        api_keys=settings.api_keys,
        cors_origins=settings.cors_origins,
        origins=settings.origins,
        realtime=settings.realtime,
        limits=Limits(
            sessions=settings.max_sessions,
            sessions_per_key=settings.max_sessions_per_key or None,
            responses_per_minute=settings.responses_per_minute or None,
        ),
        web_demo=web_demo() if settings.web_demo else None,
        ice_servers=settings.ice_servers,
        udp_ports=settings.udp_ports,
        public_address=settings.public_address,
        echo_canceller=settings.echo_canceller,
    )


def features(settings: ServerSettings) -> Features:
    """What a session may do. A remote thinker may cost money: unasked, nothing is wanted of it before the turn is over."""
    local = settings.thinker.startswith(("local", "weight:", "gguf:", "hf:")) or not settings.thinker
    return Features(
        early=settings.early_responses == "on" or (settings.early_responses == "auto" and local),
        eager_transcript=settings.early_transcripts,
        partials=settings.partial_transcripts and settings.transcriber == "local",
        prepare=local,
        window_s=settings.window_s,
        conversation_tokens=settings.conversation_tokens,
        min_interruption_ms=settings.min_interruption_ms,
        resume_after_false_interruption=settings.resume_after_false_interruption,
    )


def web_demo() -> Path | None:
    """The page's folder: inside the installed package, else beside it in a clone."""
    package = Path(__file__).parent.parent
    for folder in (package / "web_demo", package.parent / "web_demo"):
        if (folder / "index.html").exists():
            return folder
    return None


def set_up_logging(settings: ServerSettings) -> None:
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if settings.log_json else plain)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "aioice", "aiortc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # At debug it tells every header and frame of a WebSocket: keys, and what is said.
    logging.getLogger("uvicorn").setLevel(max(logging.getLogger().level, logging.INFO))
