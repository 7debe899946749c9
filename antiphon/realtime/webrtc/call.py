"""One call: the same conversation as on a socket, behind a peer connection. ``Door`` of its shell.

Media on the tracks, events on the caller's data channel and on every side channel that joins.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.realtime.auth import Caller
from antiphon.realtime.doors import Doors, new_id
from antiphon.realtime.errors import ProtocolError, Stalled
from antiphon.realtime.holdings import Holdings
from antiphon.realtime.outbox import Outbox
from antiphon.realtime.protocol import schema, wire
from antiphon.realtime.protocol.beta import Beta
from antiphon.realtime.protocol.fitting import fitting
from antiphon.realtime.protocol.media import check_media
from antiphon.realtime.protocol.schema import Dialect, Json
from antiphon.realtime.shell.runner import Shell
from antiphon.realtime.webrtc import offer as offers
from antiphon.realtime.webrtc.arrivals import Arrivals
from antiphon.realtime.webrtc.channel import LABEL, MESSAGE, Channel
from antiphon.realtime.webrtc.echo import EchoCanceller
from antiphon.realtime.webrtc.peer import NotConnected, Peer
from antiphon.realtime.webrtc.track import Track
from antiphon.session import events as ev

log = logging.getLogger("antiphon.realtime")

LATE_AUDIO_S = 2.0
"""How long a farewell on the data channel may take."""


class Call:
    """From an offer to the end. ``session`` is from ``Doors.session_object``."""

    def __init__(self, doors: Doors, caller: Caller, session: Json, dialect: Dialect) -> None:
        self.id = new_id("rtc")
        self.caller = caller
        self.dialect: Dialect = dialect
        self._doors = doors
        self._session = session
        self._pictures = doors.state.info.pictures
        self._beta = Beta() if dialect == "beta" else None
        loop = asyncio.get_running_loop()
        arrivals = Arrivals(self._hear, loop.time)
        self._arrivals = arrivals
        self._echo = EchoCanceller() if doors.state.settings.echo_canceller else None
        self._track = Track(self._played, self._sounding)
        self._channel: Channel | None = None
        self._outbox = Outbox()
        self._holdings = Holdings()
        self._listeners: list[Callable[[Json | None], None]] = []
        self._shell: Shell | None = None
        self._peer = Peer(doors.state.settings, self._track, arrivals, self._channel_opened)

    # ---- OpenSession
    @property
    def busy(self) -> bool:
        return self._shell is not None and self._shell.responding > 0

    @property
    def config(self) -> Json:
        """The effective GA session."""
        return self._shell.machine.config if self._shell is not None else self._session

    async def answer(self, offer: str) -> str:
        """The answer to the caller's offer; what it raises, ``Peer.answer`` raises. ``run`` follows, or ``abandon``."""
        if offers.has_channel(offer):
            self._channel = Channel()
        return await self._peer.answer(offer)

    async def abandon(self) -> None:
        """The offer was not answered."""
        await self._peer.close()

    async def run(self) -> None:
        """Until either side ends it. The named boundary: what breaks here ends this call only."""
        state = self._doors.state
        gauge = state.metrics.sessions_open.labels("webrtc")
        gauge.inc()
        ending, trace = "client", None
        self._doors.sessions.add(self)
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    await self._peer.connected()
                    self._shell, trace = self._doors.conversation(
                        caller=self.caller,
                        session=self._session,
                        door=self,
                        transport="webrtc",
                        spawn=lambda work: group.create_task(work),
                    )
                    writer = group.create_task(self._write())
                    self._shell.begin()
                    await self._peer.gone.wait()
                    writer.cancel()
                finally:
                    if self._shell is not None:
                        self._shell.close()
        except* NotConnected as never:
            ending = "not_connected"
            for error in never.exceptions:
                log.info("%s", error, extra={"session": self.id})
                if isinstance(error, NotConnected):
                    self.send(wire.error_event(error))  # whoever waits on a side channel
        except* Exception as broken:  # boundary: one call's fault is its own
            ending = "broken"
            state.metrics.broken.inc()
            log.error("call broke", exc_info=broken, extra={"session": self.id})
        finally:
            self._doors.sessions.remove(self)
            for listener in tuple(self._listeners):
                listener(None)
            self._listeners.clear()
            gauge.dec()
            ending = self._outbox.ending or ending
            state.metrics.sessions.labels("webrtc", ending).inc()
            if trace is not None:
                state.traces.close(trace, ending)
            await self._peer.close()

    # ---- Door
    def send(self, event: Json) -> None:
        if event["type"] in ("conversation.item.added", "conversation.item.deleted"):
            self._holdings.told(event["type"], event.get("item_id") or event["item"]["id"])
        told = {"event_id": new_id("event"), **without_samples(event)}
        for listener in tuple(self._listeners):
            listener(told)
        if self._channel is None:
            return
        limit = min(MESSAGE, self._peer.longest_message or MESSAGE)
        for ready in self._beta.from_ga(told) if self._beta else (told,):
            self._outbox.put(fitting({"event_id": new_id("event"), **ready}, limit))

    def play(self, sound: ev.Play) -> None:
        self._track.speech.play(sound)

    def clear_playback(self) -> None:
        self._track.speech.clear()

    def hang_up(self, code: int, reason: str) -> None:
        self._outbox.close(code, reason)
        if self._channel is None or self._shell is None:
            self._peer.gone.set()

    # ---- side channels
    def join(self, listener: Callable[[Json | None], None]) -> Callable[[], None]:
        """Have every GA event told to ``listener`` too, and None at the end; returns how to leave."""
        self._listeners.append(listener)

        def leave() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return leave

    def receive(self, message: str | bytes, dialect: Dialect, beta: Beta | None, refuse: Callable[[Json], None]) -> None:
        """A client event from the data channel or a side channel; a bad one is told to ``refuse`` as an ``error`` event."""
        event_id = None
        try:
            event = wire.parse(message, dialect)
            event_id = schema.event_id_of(event)
            if event["type"] == "input_audio_buffer.append":
                raise ProtocolError("In a call the audio comes on its track.", code="invalid_value", param="type")
            event = beta.to_ga(event) if beta else event
            check_media(event, self._pictures)
            if event["type"] == "conversation.item.create":
                self._holdings.ask(len(message), event_id)
        except ProtocolError as error:
            self._doors.state.metrics.error(error.code)
            refuse(wire.error_event(error, event_id))
        else:
            if self._shell is not None:
                self._shell.feed(ev.Command(event))
            self._holdings.settle()

    # ---- the peer
    def _channel_opened(self, channel: Any) -> None:
        if channel.label != LABEL or self._channel is None or self._channel.is_open:
            message = f"Events go over one data channel '{LABEL}'; this one is not read."
            error = ProtocolError(message, code="invalid_value", param="label")
            channel.send(wire.encode({**wire.error_event(error), "event_id": new_id("event")}))
            return
        self._channel.opened(channel)
        channel.on("message", lambda message: self.receive(message, self.dialect, self._beta, self.send))

    def _hear(self, samples: NDArray[np.float32]) -> None:
        if self._shell is not None:
            self._shell.hear_samples(self._echo.heard(samples) if self._echo else samples)

    def _sounding(self, samples: NDArray[np.float32]) -> None:
        """20 ms are being played."""
        if self._echo is not None:
            self._echo.played(samples)
        self._arrivals.tick()

    def _played(self, item_id: str, samples: int) -> None:
        if self._shell is not None:
            self._shell.feed(ev.Played(item_id, samples))

    async def _write(self) -> None:
        """Events to the channel, until the server hangs up or the caller does not read."""
        channel = self._channel
        if channel is None:
            return

        async def close(code: int, reason: str) -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LATE_AUDIO_S):
                    await channel.flush()
            self._peer.gone.set()

        try:
            await self._outbox.run(channel.send, close)
        except Stalled as error:
            self._doors.state.metrics.stalled.inc()
            log.warning("a caller does not read: %s", error, extra={"session": self.id})
            self._peer.gone.set()
        except ConnectionError:
            self._peer.gone.set()  # the caller closed the channel: that is its way of hanging up


def without_samples(event: Json) -> Json:
    """Over WebRTC sound is on the tracks: a retrieved item comes without its audio."""
    if event["type"] != "conversation.item.retrieved":
        return event
    item = event["item"]
    parts = [{k: v for k, v in part.items() if not isinstance(v, ev.InputAudio)} for part in item.get("content") or ()]
    return {**event, "item": {**item, "content": parts}} if parts else event
