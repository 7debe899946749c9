"""Who is calling: API keys, ephemeral keys, origins. A key is never kept, logged or shown: only its digest.

A caller presents its key as ``Authorization: Bearer``, as ``api-key`` (Azure-style clients), or, in a browser that can
set no header on a WebSocket, inside a subprotocol ``openai-insecure-api-key.KEY``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.realtime.errors import TooMany, Unauthorized

KEY_PROTOCOL = "openai-insecure-api-key."
EPHEMERAL_PREFIX = "ek_"
MAX_EPHEMERAL = 10_000
"""Ephemeral keys alive at once; past it minting is refused."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a key belongs to. ``id`` is safe to log and to count by: a digest's beginning, or "anonymous".

    ``session``: the settings an ephemeral key carries, in GA shape.
    """

    id: str
    ephemeral: bool = False
    session: Mapping[str, Any] | None = None


ANONYMOUS = Caller("anonymous")


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """A freshly minted key, the only time its value is seen; ``expires_at`` in unix seconds."""

    value: str
    expires_at: int


def presented(headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> str | None:
    """The key that a request presents, or None. ``headers`` by lower-case names."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if headers.get("api-key"):
        return headers["api-key"]
    for offered in subprotocols:
        if offered.startswith(KEY_PROTOCOL):
            return offered.removeprefix(KEY_PROTOCOL)
    return None


class Keys:
    """The keys that open this server. Without any configured, every caller is ANONYMOUS (clients send dummies).

    ``clock`` gives unix seconds.
    """

    def __init__(self, keys: Iterable[str] = (), *, clock: Callable[[], float]) -> None:
        self._digests = tuple(_digest(key) for key in keys)
        self._clock = clock
        self._ephemeral: dict[bytes, tuple[float, Caller]] = {}

    @property
    def required(self) -> bool:
        """Whether a caller must present a key."""
        return bool(self._digests)

    def caller(self, key: str | None, *, realtime: bool = False) -> Caller:
        """Who presents ``key``; ``realtime``: ephemeral keys are welcome too. Raises ``Unauthorized``."""
        if realtime and key is not None and key.startswith(EPHEMERAL_PREFIX):
            found = self._ephemeral.get(_digest(key))
            if found is not None and found[0] > self._clock():
                return found[1]
            if self.required or found is not None:
                raise Unauthorized("The ephemeral key is unknown or has expired.", code="invalid_api_key")
        if not self._digests:
            return ANONYMOUS
        if key is None:
            raise Unauthorized("You didn't provide an API key.", code="invalid_api_key")
        digest = _digest(key)
        # Every key is compared, so that the time tells nothing about which one was near.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise Unauthorized("Incorrect API key provided.", code="invalid_api_key")
        return Caller(f"key-{digest.hex()[:8]}")

    def mint(self, owner: Caller, session: Mapping[str, Any] | None, seconds: int) -> Ephemeral:
        """A key that opens realtime sessions as ``owner`` with these settings until it expires."""
        now = self._clock()
        self._ephemeral = {d: (until, c) for d, (until, c) in self._ephemeral.items() if until > now}
        if len(self._ephemeral) >= MAX_EPHEMERAL:
            raise TooMany("Too many ephemeral keys are alive; try again later.", code="rate_limit_exceeded", retry_after_s=60.0)
        value = EPHEMERAL_PREFIX + secrets.token_urlsafe(32)
        until = int(now) + seconds
        self._ephemeral[_digest(value)] = (until, Caller(owner.id, ephemeral=True, session=session))
        return Ephemeral(value, until)


class Origins:
    """The browsers' origins that may open a socket; an empty list allows all. Other clients send no Origin."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def allows(self, origin: str | None) -> bool:
        return not self._allowed or origin is None or "*" in self._allowed or origin.rstrip("/").lower() in self._allowed


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
