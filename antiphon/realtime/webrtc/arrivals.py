"""A caller's packets in order and without a wait: Opus in, 16 kHz float32 out.

The ears do not listen, they measure: smooth playback, which a jitter buffer buys with a delay on every packet, is worth
nothing to them. So a packet in its turn goes through at once, and only a gap is waited for. What never comes becomes
silence of the same length, so that the sample clock keeps the time of the caller.

Stands in the place of aiortc's jitter buffer, which holds back 80 ms, and 300 ms for ever after the first lost packet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from av import CodecContext, FFmpegError
from av.audio.codeccontext import AudioCodecContext
from av.packet import Packet
from numpy.typing import NDArray

from antiphon.codecs.resample import FirResampler
from antiphon.session.events import IN_RATE

OPUS_RATE = 48_000
PATIENCE_S = 0.12
"""How long a missing packet is waited for."""
HELD = 16
"""Packets held behind a gap at most."""
LONGEST_GAP_S = 2.0
"""A hole in the timestamps that is filled with silence; a longer one is a jump of the caller's clock."""
STALL_S = 0.2
"""Without any packet for so long, silence is told: a caller that stops sending has stopped speaking."""
TICK = IN_RATE // 50


class Arrivals:
    """``hear`` gets 16 kHz float32 [n] in order. ``clock``: monotonic seconds."""

    def __init__(self, hear: Callable[[NDArray[np.float32]], None], clock: Callable[[], float]) -> None:
        self._hear = hear
        self._clock = clock
        codec = CodecContext.create("libopus", "r")
        assert isinstance(codec, AudioCodecContext)
        codec.sample_rate, codec.layout = OPUS_RATE, "mono"
        self._codec = codec
        self._resample = FirResampler(OPUS_RATE, IN_RATE)
        self._waiting: dict[int, Any] = {}
        self._next: int | None = None
        self._timestamp: int | None = None
        self._gap_since: float | None = None
        self._last = clock()
        self._invented = 0  # samples of silence told while nothing came, at 48 kHz
        self.lost = 0

    # ---- what aiortc's receiver asks of a jitter buffer
    def add(self, packet: Any) -> tuple[bool, None]:
        """A packet has come; nothing is ever given back: it has been dealt with."""
        self._last = self._clock()
        number = packet.sequence_number
        if self._next is None:
            self._next = number
        ahead = (number - self._next) & 0xFFFF
        if ahead < 0x8000:
            self._waiting[number] = packet
        self._release()
        return False, None

    def tick(self) -> None:
        """Called every 20 ms: gives up on what is too late, and tells silence when nothing comes any more."""
        self._release()
        if self._clock() - self._last > STALL_S:
            self._invented += TICK * OPUS_RATE // IN_RATE
            self._hear(np.zeros(TICK, np.float32))

    def _release(self) -> None:
        while self._waiting and self._next is not None:
            packet = self._waiting.pop(self._next, None)
            if packet is None:
                if not self._given_up():
                    return
                following = min(self._waiting, key=lambda n: (n - (self._next or 0)) & 0xFFFF)
                self.lost += (following - self._next) & 0xFFFF
                self._next = following
                continue
            self._gap_since = None
            self._next = (self._next + 1) & 0xFFFF
            self._take(packet)

    def _given_up(self) -> bool:
        now = self._clock()
        if self._gap_since is None:
            self._gap_since = now
        if len(self._waiting) < HELD and now - self._gap_since < PATIENCE_S:
            return False
        self._gap_since = None
        return True

    def _take(self, packet: Any) -> None:
        if self._timestamp is not None:
            gap = (packet.timestamp - self._timestamp) & 0xFFFFFFFF
            if gap < LONGEST_GAP_S * OPUS_RATE:
                self._feed(np.zeros(max(0, gap - self._invented), np.float32))
        self._invented = 0
        samples = self._decode(packet._data)
        self._timestamp = (packet.timestamp + len(samples)) & 0xFFFFFFFF
        self._feed(samples)

    def _decode(self, data: bytes) -> NDArray[np.float32]:
        """What is no Opus is left out: the next packet's timestamp says how long it was."""
        try:
            frames = self._codec.decode(Packet(data)) if data else []
        except FFmpegError:
            return np.zeros(0, np.float32)
        pieces = [_mono(frame.to_ndarray()) for frame in frames]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def _feed(self, samples: NDArray[np.float32]) -> None:
        if len(samples):
            self._hear(self._resample.feed(samples))


def _mono(frame: NDArray[Any]) -> NDArray[np.float32]:
    """One decoded frame [1, n] as float32."""
    flat = frame.reshape(-1)
    if flat.dtype == np.int16:
        return flat.astype(np.float32) / np.float32(32768)
    return flat.astype(np.float32, copy=False)
