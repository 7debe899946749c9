"""What the realtime doors share, whatever the transport: made once by the app, given to every conversation."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from antiphon.realtime.auth import Caller, Keys, Origins
from antiphon.realtime.limits import Admission
from antiphon.realtime.metrics import Metrics
from antiphon.realtime.sessions import Sessions
from antiphon.realtime.shell.pump import Graph
from antiphon.realtime.shell.runner import Door, Ear, Shell, Spawn
from antiphon.realtime.tracing import SessionTrace, Traces
from antiphon.realtime.watch import Watch
from antiphon.session import config as session_config
from antiphon.session import events as ev
from antiphon.session.features import Features
from antiphon.session.machine import Session

Kind = Literal["realtime", "transcription"]
Transport = Literal["websocket", "webrtc"]
OpenEar = Callable[[Callable[[ev.SpeechScored], None]], Ear]


def new_id(kind: str) -> str:
    """``kind_`` and 20 hex digits."""
    return f"{kind}_{uuid.uuid4().hex[:20]}"


@dataclass
class Doors:
    """The services of a conversation. ``features`` are the server's; a session's differ by its transport only."""

    graph: Graph
    open_ear: OpenEar
    keys: Keys
    admission: Admission
    metrics: Metrics
    features: Features = field(default_factory=Features)
    origins: Origins = field(default_factory=Origins)
    sessions: Sessions = field(default_factory=Sessions)
    traces: Traces = field(default_factory=Traces)
    drain_s: float = 10.0
    _aside: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn_aside(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that belongs to no session: the wait for an aborted generation's last receipt."""
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def drain(self) -> None:
        """Admit nobody, let answers end, close with 1001."""
        self.admission.closing = True
        await self.sessions.drain(self.drain_s)
        for task in list(self._aside):
            task.cancel()

    def session_object(self, kind: Kind, model: str, carried: ev.Json | None = None) -> ev.Json:
        """A fresh GA session object, with the settings that an ephemeral key or a REST body carries laid over it.

        Raises ``session.errors.Refused``.
        """
        features = self.features
        expires = int(time.time() + features.max_seconds)
        fresh = session_config.fresh(model, new_id("sess"), expires, kind, features)
        return session_config.merged(fresh, carried, features) if carried else fresh

    def conversation(
        self, *, caller: Caller, session: ev.Json, door: Door, transport: Transport, spawn: Spawn
    ) -> tuple[Shell, SessionTrace]:
        """A conversation behind ``door``; ``session`` from ``session_object``. Nothing is sent before ``begin``."""
        machine = Session(session, new_id, replace(self.features, transport=transport))
        trace = self.traces.open(session["id"], transport, caller.id)
        shell = Shell(
            id=session["id"],
            machine=machine,
            door=door,
            graph=self.graph,
            open_ear=self.open_ear,
            spawn=spawn,
            observer=Watch(self.metrics, trace, self.spawn_aside),
            count_response=lambda: self.admission.response(caller.id),
        )
        return shell, trace
