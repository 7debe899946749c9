"""What conversations share on every transport: made once beside the server's state, given to each of them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from antiphon.pipelines.info import PipelineInfo
from antiphon.realtime.auth import Caller, Origins
from antiphon.realtime.errors import Unavailable
from antiphon.realtime.load import EVERY_S, Load
from antiphon.realtime.sessions import Sessions
from antiphon.realtime.shell.ears import SharedEars
from antiphon.realtime.shell.neighbours import Door, Ear
from antiphon.realtime.shell.runner import Shell, Spawn
from antiphon.realtime.state import State
from antiphon.realtime.tracing import SessionTrace
from antiphon.realtime.watch import Watch
from antiphon.session import config as session_config
from antiphon.session import events as ev
from antiphon.session.features import Features, rough_tokens
from antiphon.session.machine import Session

LAST_WORDS_S = 12.0
"""After conversations have ended, answers over REST may run so long; then they end with an error that says why. The server
cuts off whatever is open after 15 s, without a word."""
Kind = Literal["realtime", "transcription"]
Transport = Literal["websocket", "webrtc"]
OpenEar = Callable[[Callable[[ev.SpeechScored], None]], Ear]


def new_id(kind: str) -> str:
    """``kind_`` and 20 hex digits."""
    return f"{kind}_{uuid.uuid4().hex[:20]}"


class Doors:
    """``open_ear`` gives a session its place in the ears; ``features`` are what the operator allows every session.

    ``drain_s``: how long answers may still run when the server is told to end.
    """

    def __init__(self, state: State, open_ear: OpenEar, features: Features | None = None, *, drain_s: float = 10.0) -> None:
        self.state = state
        self.origins = Origins(state.settings.origins)
        self.sessions = Sessions()
        self.load = Load()
        self._open_ear = open_ear
        if isinstance(open_ear, SharedEars):
            state.metrics.watch_ears(open_ear.stats)
        self._features = features or Features()
        self._drain_s = drain_s
        self._watching = False

    async def _watch_load(self) -> None:
        """While anybody talks."""
        try:
            await asyncio.sleep(EVERY_S)
            while len(self.load):
                self.load.sample(self.state.client.stats().get("stages", {}))
                await asyncio.sleep(EVERY_S)
        except Unavailable:  # the server is closing
            pass
        finally:
            self._watching = False

    async def drain(self) -> None:
        """Admit nobody, let answers end, close with 1001; answers over REST that still run then end in a while."""
        self.state.admission.closing = True
        await self.sessions.drain(self._drain_s)
        self.state.spawn(self._last_words())

    async def _last_words(self) -> None:
        await asyncio.sleep(LAST_WORDS_S)
        self.state.end()

    def features(self) -> Features:
        """What a session may do on the pipeline that runs. Raises ``Unavailable`` while none does."""
        return allowed(self._features, self.state.info)

    def session_object(self, kind: Kind, model: str | None, carried: ev.Json | None = None) -> ev.Json:
        """A fresh GA session object, with the settings that an ephemeral key or a REST body carries laid over it.

        Raises ``Unavailable``, and ``session.errors.Refused`` for settings that cannot be had.
        """
        features = self.features()
        expires = int(time.time() + features.max_seconds)
        named = model or (carried or {}).get("model") or self.state.info.model
        fresh = session_config.fresh(str(named), new_id("sess"), expires, kind, features)
        return session_config.merged(fresh, carried, features) if carried else fresh

    def conversation(
        self, *, caller: Caller, session: ev.Json, door: Door, transport: Transport, spawn: Spawn
    ) -> tuple[Shell, SessionTrace]:
        """A conversation behind ``door``; ``session`` is from ``session_object``. Nothing is sent before ``begin``."""
        state = self.state
        if not self._watching:
            self._watching = True
            state.spawn(self._watch_load())
        machine = Session(
            session,
            new_id=new_id,
            features=replace(self.features(), transport=transport),
            rate_limits=lambda: state.admission.rate_limits(caller.id),
        )
        trace = state.traces.open(session["id"], transport, caller.id)
        shell = Shell(
            id=session["id"],
            machine=machine,
            door=door,
            graph=state.client,
            open_ear=self._open_ear,
            spawn=spawn,
            observer=Watch(state.metrics, trace, state.spawn),
            load=self.load,
            count_response=lambda: state.admission.response(caller.id),
        )
        return shell, trace


def allowed(features: Features, info: PipelineInfo) -> Features:
    """The operator's switches, less what the pipeline cannot do."""
    outputs = info.terminals.get("chat", ())
    return replace(
        features,
        outputs=tuple(o for o in features.outputs if o in outputs),
        inputs=tuple(i for i in features.inputs if i in info.inputs.get("chat", ())),
        early=features.early and info.early_responses,
        context_tokens=features.context_tokens or info.context_tokens,
        conversation_tokens=features.conversation_tokens or info.conversation_tokens,
        estimate=partial(rough_tokens, pictures=info.pictures, speech=info.speech_tokens)
        if features.estimate is rough_tokens
        else features.estimate,
    )
