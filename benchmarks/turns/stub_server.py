"""A server on stub stages: python -m benchmarks.turns.stub_server [--no-early] [--no-eager] [--port N]"""

from __future__ import annotations

import argparse
import asyncio
import socket

from antiphon.cli.backend import ears
from antiphon.pipelines.client import Client
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime import sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.limits import Limits
from antiphon.realtime.settings import Settings
from antiphon.session.features import Features
from antiphon.settings import ServerSettings
from benchmarks.turns.stub_stages import build


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-early", action="store_true")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port))
    with ears(ServerSettings()) as open_ear:
        app = create_app(
            Settings(limits=Limits(sessions=512)),
            lambda: Client(LocalRuntime(build(), max_requests=1024)),
            open_ear=open_ear,
            features=Features(early=not options.no_early, eager_transcript=not options.no_eager),
            on_started=lambda error: print(f"ready http://127.0.0.1:{listening.getsockname()[1]}", flush=True),
        )
        server = sockets.Server(sockets.config(app, log_level="error"), app.state.doors.drain)
        asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main()
