"""What the server's echo canceller does to recordings: python -m benchmarks.echo VOICE HUMAN

VOICE: a recording that the agent "says"; HUMAN: a person over it. The voice goes through a small room, comes back at a level
and a delay, and Silero says what it makes of it. "speech in it": the share of windows of the echo alone that are scored as
speech (>= 0.5), before and after; "heard after": from the person's first loud sample to the first such window.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.media import decode
from antiphon.codecs.resample import FirResampler
from antiphon.pipelines import weights
from antiphon.pipelines.ears import silero
from antiphon.realtime.webrtc.echo import EchoCanceller
from benchmarks.machine import machine, table

RATE, WINDOW = 16_000, 512
SETTLE_S = 2.0
"""What the canceller is given to learn the way; the figures are of what comes after."""
Samples = NDArray[np.float32]


def room(seed: int = 3) -> Samples:
    """A small room's impulse response at 16 kHz: the direct way, then noise that falls by 60 dB in 250 ms (Polack's model)."""
    at = np.arange(int(0.15 * RATE)) / RATE
    tail = np.random.default_rng(seed).normal(size=len(at)) * 10 ** (-3 * at / 0.25) * 0.12
    tail[0] = 1.0
    return tail.astype(np.float32)


def returned(voice: Samples, level_db: float, delay_ms: float) -> Samples:
    """What the microphone gets of the voice, 16 kHz."""
    echo = np.convolve(voice, room())[: len(voice)]
    echo *= 10 ** (level_db / 20) * np.sqrt(np.mean(voice**2) / np.mean(echo**2))
    return np.concatenate((np.zeros(int(delay_ms * RATE / 1000)), echo))[: len(voice)].astype(np.float32)


def cancelled(voice_24k: Samples, microphone: Samples) -> Samples:
    """As a call does it: 20 ms played, 20 ms heard."""
    canceller, out = EchoCanceller(), []
    for n in range(len(microphone) // 320):
        canceller.played(voice_24k[n * 480 : (n + 1) * 480])
        out.append(canceller.heard(microphone[n * 320 : (n + 1) * 320]))
    return np.concatenate(out)


def speech(samples: Samples) -> NDArray[np.float32]:
    """P(speech) of every window."""
    return silero.Silero(weights.path(silero.WEIGHT)).scan(samples)


def decibels(samples: Samples) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2) + 1e-12))


def main(voice_file: Path, human_file: Path) -> None:
    voice_24k = decode(voice_file.read_bytes(), 24_000)
    voice_24k = np.tile(voice_24k, 24_000 * 12 // len(voice_24k) + 1)[: 24_000 * 12]
    voice = FirResampler(24_000, RATE).feed(voice_24k)
    human = decode(human_file.read_bytes(), RATE)
    human = human[np.flatnonzero(np.abs(human) > 0.02)[0] :][: 2 * RATE]
    human *= np.float32(np.sqrt(np.mean(voice**2) / np.mean(human**2)))  # as loud as the agent is at its loudspeaker
    begin = int(7.0 * RATE)
    settle = int(SETTLE_S * RATE)
    rows = []
    for level in (-6, -10, -20):
        for delay in (80, 140, 200, 320):
            echo = returned(voice, level, delay)
            clean = cancelled(voice_24k, echo)
            gained = decibels(echo[settle : len(clean)]) - decibels(clean[settle:])
            both = echo.copy()
            both[begin : begin + len(human)] += human
            alone = [100 * np.mean(speech(heard)[settle // WINDOW :] >= 0.5) for heard in (echo, clean)]
            after = first_speech(cancelled(voice_24k, both), begin)
            rows.append([level, delay, f"{gained:.0f}", *(f"{share:.0f} %" for share in alone), after])
    print(machine())
    print(
        table(["echo dB", "delay ms", "taken away dB", "speech in it: before", "after", "human over it heard after ms"], rows)
    )
    quiet = np.zeros(len(voice), np.float32)
    quiet[begin : begin + len(human)] = human
    print(f"the human alone, as it came: heard after {first_speech(quiet, begin)} ms")


def first_speech(samples: Samples, begin: int) -> str:
    """Milliseconds from ``begin`` to the end of the first window scored as speech."""
    over = np.flatnonzero(speech(samples)[begin // WINDOW :] >= 0.5)
    return f"{((begin // WINDOW + over[0] + 1) * WINDOW - begin) * 1000 // RATE}" if len(over) else "never"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("voice", type=Path)
    parser.add_argument("human", type=Path)
    given = parser.parse_args()
    main(given.voice, given.human)
