"""``antiphon doctor``: what is missing, and the command that mends it."""

from __future__ import annotations

import importlib.util
import os
import platform
import socket
import sys
from collections.abc import Iterator

from antiphon.cli.backend import EXTRAS, needed_weights
from antiphon.cli.console import fail
from antiphon.pipelines import weights
from antiphon.settings import ServerSettings


def doctor() -> None:
    """Look at this machine; exit 1 if the CPU voice cannot run on it."""
    broken = 0
    for label, fine, told in _findings():
        print(f"{'ok  ' if fine else 'MISS'} {label}: {told}")
        broken += not fine and not label.startswith("optional")
    if broken:
        fail(f"{broken} thing{'s' if broken > 1 else ''} missing")


def _findings() -> Iterator[tuple[str, bool, str]]:
    """(what, is it fine, what it is or how to mend it)"""
    version = platform.python_version()
    yield "python", sys.version_info >= (3, 11), version if sys.version_info >= (3, 11) else f"{version}; 3.11 is needed"
    yield "cores", True, str(os.cpu_count())
    for extra, modules in (("local", EXTRAS["local"]), ("webrtc", ("aiortc", "av")), ("omni", EXTRAS["qwen3_omni"])):
        missing = [m for m in modules if importlib.util.find_spec(m) is None]
        label = f"extra {extra}" if extra == "local" else f"optional extra {extra}"
        yield label, not missing, f"pip install 'antiphon[{extra}]'" if missing else "installed"
    if importlib.util.find_spec("hibari") is not None:
        for name in needed_weights(ServerSettings()):
            here = weights.describe(name).installed
            yield f"weight {name}", here, "installed" if here else f"antiphon models pull {name}"
    yield "port 8000", *_port(8000)


def _port(port: int) -> tuple[bool, str]:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True, "in use: antiphon serve --port 8001"
    return True, "free"
