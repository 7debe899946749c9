"""The server's echo canceller: what it takes away, what it leaves, and a call with the agent's voice in the microphone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from antiphon.pipelines.client import Event
from antiphon.pipelines.outputs import AudioDelta, AudioResult, Mark, TextDelta, TextResult, Usage
from antiphon.pipelines.requests import GenerateRequest
from antiphon.realtime.settings import Settings
from antiphon.realtime.webrtc.echo import LEAD, EchoCanceller
from tests.realtime.stubs import Script, StubClient, StubWork
from tests.webrtc.calling import FRAME, Caller, Samples, calling, serving

pytest.importorskip("livekit", reason="livekit is not installed: pip install 'antiphon[echo]'")

DELAY_MS, LEVEL = 120, 0.5
"""What comes back of the loudspeaker: -6 dB, 120 ms later."""
CARD_MS = 300
"""A whole call's way back: the caller's sound card holds enough for a busy machine, so that it never has to wait."""


def murmur(seconds: float, rate: int, seed: int = 1) -> Samples:
    """Something like a voice to a detector of energy and to a canceller: coloured noise in syllables, four a second."""
    drawn = np.random.default_rng(seed).normal(size=int(seconds * rate))
    spectrum = np.fft.rfft(drawn)
    hz = np.fft.rfftfreq(len(drawn), 1 / rate)
    spectrum *= np.where((hz > 100) & (hz < 4_000), 1 / (1 + (hz / 800) ** 2), 0)
    at = np.arange(len(drawn)) / rate
    made = np.fft.irfft(spectrum, len(drawn)) * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * at))
    return (0.15 * made / np.sqrt(np.mean(made**2))).astype(np.float32)


def decibels(samples: Samples) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2) + 1e-12))


def through(played: Samples, heard: Samples, late: tuple[int, ...] = ()) -> Samples:
    """20 ms of each at a time; what was heard in the frames ``late`` comes with the next frame that is not."""
    canceller, out, waiting = EchoCanceller(), [], np.zeros(0, np.float32)
    for n in range(len(heard) // 320):
        canceller.played(played[n * 480 : (n + 1) * 480])
        waiting = np.concatenate((waiting, heard[n * 320 : (n + 1) * 320]))
        if n not in late:
            out.append(canceller.heard(waiting))
            waiting = waiting[:0]
    return np.concatenate(out)


def echoed(seconds: float, delay_ms: int = DELAY_MS) -> tuple[Samples, Samples]:
    """(played at 24 kHz, heard at 16 kHz)"""
    played = murmur(seconds, 24_000)
    spectrum = np.fft.rfft(played)[: int(seconds * 8_000) + 1]
    at_16k = np.fft.irfft(spectrum, int(seconds * 16_000)) * 2 / 3  # an ideal resampler, and none of ours
    heard = np.concatenate((np.zeros(delay_ms * 16), LEVEL * at_16k))[: len(at_16k)]
    return played, heard.astype(np.float32)


@pytest.mark.parametrize("delay_ms", [80, 200, 320])
def test_the_agents_own_voice_goes(delay_ms: int) -> None:
    played, heard = echoed(5.0, delay_ms)
    clean = through(played, heard)
    assert abs(len(clean) - len(heard)) < 160
    assert decibels(heard[32_000:]) - decibels(clean[32_000:]) > 20


def test_jitter_of_the_network_is_no_other_delay() -> None:
    played, heard = echoed(6.0)
    late = tuple(n for n in range(20, 300) if n % 17 < 4)  # again and again 80 ms late
    clean = through(played, heard, late)
    assert decibels(heard[48_000:]) - decibels(clean[48_000:]) > 20


def test_a_voice_without_an_echo_stays() -> None:
    person = murmur(4.0, 16_000, seed=2)
    clean = through(np.zeros(4 * 24_000, np.float32), person)
    assert abs(decibels(person[16_000:]) - decibels(clean[16_000:])) < 2


def test_a_person_over_the_echo_stays() -> None:
    played, heard = echoed(5.0)
    person = np.zeros(len(heard), np.float32)
    person[48_000:64_000] = murmur(1.0, 16_000, seed=2)
    clean = through(played, heard + person)
    assert decibels(person[48_000:64_000]) - decibels(clean[48_000:64_000]) < 6


def test_a_microphone_that_stands_still_costs_no_memory() -> None:
    canceller = EchoCanceller()
    for _ in range(500):
        canceller.played(np.zeros(480, np.float32))
    assert len(canceller._played) == LEAD
    assert len(canceller.heard(np.zeros(308, np.float32))) == 320 and len(canceller.heard(np.zeros(320, np.float32))) == 320
    assert len(canceller.heard(np.zeros(0, np.float32))) == 0


class SpokenWork(StubWork):
    """Answers with a murmur of six seconds, made faster than it is played."""

    async def _events(self) -> AsyncIterator[Event]:
        if self.request.task != "chat" or self.request.kind == "prepare":
            return
        text, sound = "A long answer.", murmur(6.0, 24_000)
        yield Event("text", TextDelta(text, 3))
        for start in range(0, len(sound), 1_920):
            piece = sound[start : start + 1_920]
            yield Event("audio", AudioDelta(piece, (Mark(start + len(piece), len(text)),)))
            await self._sleep(0.01)
        yield Event("audio", AudioResult(len(sound)), last=True)
        yield Event("text", TextResult("stop", Usage(10, 0, 3)), last=True)


class SpokenClient(StubClient):
    def generate(self, request: GenerateRequest) -> StubWork:
        work = SpokenWork(request, Script(), lambda w: self.open.discard(id(w)))
        self.works.append(work)
        return work


async def loudspeaker(caller: Caller) -> None:
    """What the caller hears comes back into its microphone."""
    caller.microphone.say(np.zeros(CARD_MS * 48, np.float32))
    told = 0
    while True:
        while told < len(caller.frames):
            caller.microphone.say(caller.frames[told][:FRAME] * np.float32(LEVEL))
            told += 1
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_call_beside_its_own_loudspeaker(cancelled: bool) -> None:
    """With the canceller the answer is heard out, and a person may still interrupt it. Without it the answer cuts itself."""
    settings = Settings(echo_canceller=cancelled)
    async with serving(SpokenClient(), settings=settings) as running, calling(running) as caller:
        echoing = asyncio.create_task(loudspeaker(caller))
        try:
            caller.ask("speak")
            if not cancelled:
                await caller.until("input_audio_buffer.speech_started", within=30)
                await caller.until("output_audio_buffer.cleared")
                return
            await caller.until("output_audio_buffer.stopped", within=30)
            assert "input_audio_buffer.speech_started" not in caller.types()
            caller.ask("speak again")
            await caller.until("output_audio_buffer.started")
            await asyncio.sleep(1.0)
            caller.microphone.beside(murmur(1.0, 48_000, seed=2))
            await caller.until("input_audio_buffer.speech_started", within=30)
            await caller.until("output_audio_buffer.cleared")
        finally:
            echoing.cancel()
            await asyncio.gather(echoing, return_exceptions=True)
