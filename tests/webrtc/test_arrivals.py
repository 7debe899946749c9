"""Packets in any order, with any missing: what the ears get, and when."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from av import AudioFrame, CodecContext

from antiphon.realtime.webrtc.arrivals import HELD, PATIENCE_S, STALL_S, Arrivals

FRAME = 960


@dataclass
class Packet:
    """The three fields of aiortc's RtpPacket that matter here."""

    sequence_number: int
    timestamp: int
    _data: bytes


class Ear:
    def __init__(self) -> None:
        self.now = 0.0
        self.pieces: list[np.ndarray] = []
        self.arrivals = Arrivals(self.pieces.append, lambda: self.now)

    def add(self, *packets: Packet, every: float = 0.02) -> None:
        for packet in packets:
            self.now += every
            self.arrivals.add(packet)

    @property
    def heard(self) -> np.ndarray:
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, np.float32)


@pytest.fixture(scope="module")
def packets() -> list[Packet]:
    return encoded(first=1000)


def encoded(first: int, count: int = 100) -> list[Packet]:
    """Two seconds of a rising tone as Opus, by libopus through PyAV."""
    codec = CodecContext.create("libopus", "w")
    codec.sample_rate, codec.layout, codec.format = 48_000, "mono", "s16"
    codec.time_base = Fraction(1, 48_000)
    at = np.arange(count * FRAME) / 48_000
    signal = (0.4 * np.sin(2 * np.pi * (200 * at + 100 * at**2)) * 32767).astype("<i2")
    made = []
    for n in range(count):
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(signal[n * FRAME : (n + 1) * FRAME].tobytes())
        frame.sample_rate, frame.pts = 48_000, n * FRAME
        made += [bytes(p) for p in codec.encode(frame)]
    return [Packet((first + n) & 0xFFFF, (77_000 + n * FRAME) & 0xFFFFFFFF, data) for n, data in enumerate(made)]


def test_in_order_every_packet_is_heard_at_once(packets: list[Packet]) -> None:
    ear = Ear()
    for n, packet in enumerate(packets):
        ear.add(packet)
        assert len(ear.heard) >= (n + 1) * 320 - 320 - 12  # 16 kHz; the decoder's start, the filter's look-ahead
    reference = ear.heard
    power = np.sqrt(np.mean(reference[4_000:] ** 2))
    assert 0.2 < power < 0.36  # a tone of 0.4: 0.28


def test_jitter_and_disorder_change_nothing(packets: list[Packet]) -> None:
    calm, rough = Ear(), Ear()
    calm.add(*packets)
    shuffled = list(packets)
    for n in range(1, len(shuffled) - 4, 5):
        shuffled[n], shuffled[n + 3] = shuffled[n + 3], shuffled[n]
    rough.add(*shuffled)
    rough.add(*shuffled[:10])  # and late doubles
    assert np.array_equal(calm.heard, rough.heard)


def test_what_is_lost_becomes_silence_of_its_length_and_leaves_no_delay(packets: list[Packet]) -> None:
    calm, lossy = Ear(), Ear()
    calm.add(*packets)
    kept = [p for n, p in enumerate(packets) if n % 20 != 7]  # 5 %
    for packet in kept:
        lossy.add(packet)
        behind = (packet.sequence_number - packets[0].sequence_number) * 320 - len(lossy.heard)
        assert behind <= (PATIENCE_S / 0.02 + 2) * 320
    assert lossy.arrivals.lost == 5
    assert abs(len(lossy.heard) - len(calm.heard)) <= 2
    # The last packet long after a loss is heard at once.
    size = len(lossy.heard)
    lossy.add(Packet(packets[-1].sequence_number + 1, packets[-1].timestamp + FRAME, packets[50]._data))
    assert len(lossy.heard) > size


def test_a_gap_is_given_up_by_the_clock_alone(packets: list[Packet]) -> None:
    ear = Ear()
    ear.add(packets[0], packets[2])
    size = len(ear.heard)
    ear.now += PATIENCE_S + 0.01
    ear.arrivals.tick()
    assert len(ear.heard) > size + 320


def test_a_burst_behind_a_gap_is_bounded(packets: list[Packet]) -> None:
    ear = Ear()
    ear.add(packets[0])
    ear.add(*packets[2 : 2 + HELD], every=0.0)
    assert len(ear.heard) > HELD * 320


def test_a_caller_that_stops_sending_is_silent(packets: list[Packet]) -> None:
    ear = Ear()
    ear.add(*packets[:10])
    size = len(ear.heard)
    for _ in range(50):
        ear.now += 0.02
        ear.arrivals.tick()
    stalled = 1.0 - STALL_S
    assert abs((len(ear.heard) - size) / 16_000 - stalled) < 0.05
    assert not ear.heard[size:].any()
    # It goes on, its clock has run meanwhile (discontinuous transmission): the gap counts once.
    late = [Packet(p.sequence_number, p.timestamp + 50 * FRAME, p._data) for p in packets[10:20]]
    ear.add(*late)
    assert abs(len(ear.heard) / 16_000 - (20 * 0.02 + 1.0)) < 0.05


def test_sequence_numbers_and_timestamps_wrap(packets: list[Packet]) -> None:
    plain, wrapping = Ear(), Ear()
    plain.add(*packets)
    wrapping.add(
        *(Packet((65_500 + n) & 0xFFFF, (0xFFFFFFFF - 20_000 + n * FRAME) & 0xFFFFFFFF, p._data) for n, p in enumerate(packets))
    )
    assert np.array_equal(plain.heard, wrapping.heard)


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\x00", bytes(range(256)) * 5])
def test_what_is_no_opus_harms_nobody(packets: list[Packet], data: bytes) -> None:
    ear = Ear()
    ear.add(*packets[:5])
    ear.add(Packet(packets[5].sequence_number, packets[5].timestamp, data))
    ear.add(*packets[6:20])
    assert abs(len(ear.heard) / 16_000 - 0.4) < 0.15


def test_a_jump_of_the_clock_is_no_day_of_silence(packets: list[Packet]) -> None:
    ear = Ear()
    ear.add(*packets[:5])
    ear.add(*(Packet(p.sequence_number, (p.timestamp + 1_000_000_000) & 0xFFFFFFFF, p._data) for p in packets[5:10]))
    assert len(ear.heard) < 16_000
