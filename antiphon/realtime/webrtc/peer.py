"""One peer connection: an offer answered, a track each way, the caller's data channels, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.exceptions import InvalidStateError

from antiphon.realtime.errors import RealtimeError, Unavailable
from antiphon.realtime.settings import Settings
from antiphon.realtime.webrtc import candidates
from antiphon.realtime.webrtc.addresses import port_range
from antiphon.realtime.webrtc.arrivals import Arrivals
from antiphon.realtime.webrtc.offer import bundled, unbundled, unparsed
from antiphon.realtime.webrtc.track import Track

CONNECT_S = 15.0
"""From the answer to the connection; a caller whose UDP is blocked never comes."""
CLOSE_S = 5.0
_JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"


class NotConnected(RealtimeError):
    """The caller got the answer and never came: its UDP, or ours, is blocked."""

    type = "server_error"
    status = 408


class Peer:
    """``on_channel(channel)``: the caller has opened a data channel."""

    def __init__(self, settings: Settings, track: Track, arrivals: Arrivals, on_channel: Callable[[Any], None]) -> None:
        self._settings = settings
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=candidates.ice_servers(settings.ice_servers)))
        self._track = track
        self._arrivals = arrivals
        self._connected = asyncio.Event()
        self.gone = asyncio.Event()
        self._connection.on("connectionstatechange", self._changed)
        self._connection.on("datachannel", on_channel)

    async def answer(self, offer: str) -> str:
        """The answer's SDP with every candidate in it. Raises ``BadRequest`` for an offer that cannot be answered."""
        pc = self._connection
        transceiver = pc.addTransceiver(self._track, direction="sendrecv")
        opus = [c for c in RTCRtpSender.getCapabilities("audio").codecs if c.mimeType.lower() == "audio/opus"]
        transceiver.setCodecPreferences(opus)
        try:
            await pc.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            for other in pc.getTransceivers():
                if other is not transceiver:
                    other.direction = "inactive"  # video, a second voice: nothing of it is received, nothing to drain
        except Exception as error:  # noqa: BLE001 - boundary: a parser of foreign text raises whatever it likes
            raise unparsed(error) from None
        self._listen(transceiver.receiver)
        if (ports := port_range(self._settings.udp_ports)) is not None:
            for connection in self._ice():
                candidates.confine(connection, ports)
        try:
            await pc.setLocalDescription(await pc.createAnswer())
        except ConnectionError as error:
            raise Unavailable(f"No place for another call: {error}.", code="server_busy", retry_after_s=5.0) from None
        except (InvalidStateError, ValueError) as error:
            raise unparsed(error) from None
        sdp: str = pc.localDescription.sdp
        if not bundled(offer):
            sdp = unbundled(sdp)
        return candidates.announced(sdp, self._settings.public_address) if self._settings.public_address else sdp

    async def connected(self) -> None:
        """Until media can flow. Raises ``NotConnected``."""
        try:
            async with asyncio.timeout(CONNECT_S):
                waiting = [asyncio.ensure_future(e.wait()) for e in (self._connected, self.gone)]
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in waiting:
                        task.cancel()
        except TimeoutError:
            pass
        if not self._connected.is_set():
            raise NotConnected("The caller never connected: UDP is blocked between it and this server.", code="not_connected")

    @property
    def longest_message(self) -> int:
        """Bytes that the caller takes in one message."""
        sctp = self._connection.sctp
        return sctp._remote_max_message_size or 1 << 30 if sctp is not None else 0

    async def close(self) -> None:
        """Idempotent; a library that hangs in its farewell is left behind."""
        self._track.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        self.gone.set()

    def _ice(self) -> set[Any]:
        """Every aioice connection: one, or of an offer that is not bundled one for each section."""
        transports = {t.receiver.transport for t in self._connection.getTransceivers()}
        if self._connection.sctp is not None:
            transports.add(self._connection.sctp.transport)
        return {transport.transport.iceGatherer._connection for transport in transports}

    def _listen(self, receiver: Any) -> None:
        if not hasattr(receiver, _JITTER_BUFFER):
            raise Unavailable("This version of aiortc is not known to this server; install 1.16.", code="webrtc_not_installed")
        setattr(receiver, _JITTER_BUFFER, self._arrivals)

    def _changed(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self._connected.set()
        elif state in ("failed", "closed"):
            self.gone.set()
