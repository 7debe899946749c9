"""What travels between the coordinator and the lanes. Typed, msgpack-able, never pickled.

A key names one attempt at a request; data of an attempt that a lane does not know is late by definition and dropped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.pipelines.graph import Plan
from antiphon.pipelines.stage import Listener, Reason, Request

Key = tuple[str, int]
"""Request id, attempt."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """To every lane of the plan, before any data. ``due_in_ms`` is relative to now."""

    key: Key
    request: Request
    plan: Plan
    due_in_ms: float


class Opened(msgspec.Struct, frozen=True, tag=True):
    """From a process that received ``Open`` for all its lanes (a process of our own needs none: its mail is in order)."""

    key: Key
    process: str


class Give(msgspec.Struct, frozen=True, tag=True):
    """A Result (or the request's body, from the client) for one stage. ``skipped``: the sender was never opened."""

    key: Key
    stage: str
    source: str
    data: Any = None
    skipped: bool = False


class Feed(msgspec.Struct, frozen=True, tag=True):
    """One chunk of ``source``'s stream into ``stage``."""

    key: Key
    stage: str
    source: str
    index: int
    data: Any = None
    last: bool = False
    span_ms: float = 0.0


class Credit(msgspec.Struct, frozen=True, tag=True):
    """``target`` has taken so many chunks that ``stage`` sent. (A lane says it of each; between processes they are summed.)"""

    key: Key
    stage: str
    target: str
    count: int = 1


class Tell(msgspec.Struct, frozen=True, tag=True):
    """The listener's progress, relative, on change and at most five times a second."""

    key: Key
    due_in_ms: float
    heard_ms: float | None
    window_ms: float
    listener: Listener


class Cut(msgspec.Struct, frozen=True, tag=True):
    """These stages are gone, with whatever of the request was still in them. A lane that still expects something of one,
    or still sends to one, answers with Failed (``why``, retryable); where both are over the request goes on without them.
    ``skipped``: side stages that are gone; the request goes on without them in any case."""

    key: Key
    stages: tuple[str, ...]
    why: str
    skipped: tuple[str, ...] = ()


class Close(msgspec.Struct, frozen=True, tag=True):
    """The request has ended; the lane closes its tasks and answers with a Receipt when the device is done."""

    key: Key
    reason: Reason


class Forget(msgspec.Struct, frozen=True, tag=True):
    conversation: str


class Event(msgspec.Struct, frozen=True, tag=True):
    """A chunk or the end of a terminal, for the client."""

    key: Key
    terminal: str
    stage: str
    index: int
    data: Any = None
    last: bool = False
    span_ms: float = 0.0
    skipped: bool = False


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A stage failed the request. ``client_fault``: the message answers the client as a refusal."""

    key: Key
    stage: str
    message: str
    code: str
    param: str | None = None
    client_fault: bool = False
    retryable: bool = False
    side: bool = False


class Spent(msgspec.Struct, frozen=True, tag=True):
    """What one stage cost one request: seconds it waited for its first step, its steps, seconds inside them."""

    key: Key
    stage: str
    queued_s: float
    steps: int
    step_s: float


class Closed(msgspec.Struct, frozen=True, tag=True):
    """Every ``close`` of this request on this lane has returned, and fences are left: a Receipt will follow."""

    key: Key
    lane: str


class Receipt(msgspec.Struct, frozen=True, tag=True):
    """The request is closed on this lane and no fence is left: the device has done its last work for it."""

    key: Key
    lane: str


ToLane = Open | Give | Feed | Credit | Tell | Cut | Close | Forget
ToCoordinator = Opened | Event | Failed | Spent | Closed | Receipt | Credit
