"""Settings of a call's network in words: read at start-up, without the WebRTC library."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SERVER = re.compile(r"(?P<kind>stuns?|turns?):(?:(?P<user>[^:@/?]+):(?P<secret>[^@]*)@)?(?P<rest>[^@\s]+)")


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server; ``url`` without the credentials."""

    url: str
    user: str | None = None
    secret: str | None = None


def ice_server(text: str) -> IceServer:
    """``stun:HOST:PORT`` or ``turn:USER:SECRET@HOST:PORT[?transport=tcp]``. Raises ``ValueError``, never with the secret."""
    found = _SERVER.fullmatch(text)
    if found is None:
        shown = text.split("@")[-1]
        raise ValueError(f"{shown!r} is no ICE server; write stun:HOST:PORT or turn:USER:SECRET@HOST:PORT")
    return IceServer(f"{found['kind']}:{found['rest']}", found["user"], found["secret"])


def port_range(text: str) -> tuple[int, int] | None:
    """ "FIRST-LAST", or None for any. Raises ``ValueError``."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+)-(\d+)", text.replace(" ", ""))
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        raise ValueError(f"{text!r} is no range of ports; write FIRST-LAST, for example 40000-40100")
    return int(found[1]), int(found[2])
