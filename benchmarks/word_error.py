"""Word error of the recogniser's short windows against the full one: `python -m benchmarks.word_error` prints a table.

Human clips from ../shared/audio (or $ANTIPHON_SHARED) and synthetic speech with its own text as reference. Time is CPU time
of one thread, so that a busy machine changes little. "short, no rule" is what short windows do without the rule of
``pipelines/local/reading.py``: the same window, read without timestamps.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from antiphon.codecs import media
from antiphon.pipelines import weights
from antiphon.pipelines.ears import silero
from antiphon.pipelines.local import reading, readings, whisper
from antiphon.pipelines.requests import Transcription
from benchmarks.machine import machine, table

RATE = 16_000
SHARED = Path(os.environ.get("ANTIPHON_SHARED", Path(__file__).parents[2] / "shared"))
ENGLISH = Transcription(language="en")

HUMAN = {
    "jfk.flac": "and so my fellow americans ask not what your country can do for you ask what you can do for your country",
    "LJ001-0002.wav": "in being comparatively modern",
    "LJ001-0008.wav": "has never been surpassed",
    "LJ001-0013.wav": "than in the same operations with ugly ones",
    "dog-or-cat.mp3": "should i get a dog or a cat",
}
PHRASES = {
    (0.2, 2.3): "and so my fellow americans",
    (5.3, 7.75): "what your country can do for you",
    (8.1, 10.6): "ask what you can do for your country",
}
"""Seconds of jfk.flac between its pauses."""
SYNTHETIC = (
    "Stop.",
    "Okay.",
    "Never mind.",
    "Yes, please.",
    "Hello there.",
    "Good morning!",
    "Play some music.",
    "What time is it?",
    "Thank you very much.",
    "Where did I leave my keys?",
    "Could you repeat that, please?",
    "No, that is not what I meant.",
    "What is the capital of France?",
    "Is it safe to swim in the sea?",
    "Turn off the lights in the kitchen.",
    "Can you tell me a joke about cats?",
    "The quick brown fox jumps over the lazy dog.",
    "Who wrote the play about the prince of Denmark?",
    "I would like to book a table for two people tonight.",
    "What would happen if a bear and a shark had a fight?",
    "Explain to me how a refrigerator works in simple words.",
    "Please remind me to call my mother on Sunday afternoon.",
    "I think we should leave now before it starts to rain again.",
    "The weather tomorrow will be sunny with a light wind from the west.",
    "How far is the moon from the earth, and how long would it take to drive there?",
    "If you had to choose between a cat and a dog, which one would you rather have at home?",
    "Yesterday we walked along the river until the sun went down, and then we had dinner in a small restaurant near the "
    "old bridge.",
)


@dataclass(frozen=True)
class Clip:
    kind: str
    name: str
    sound: NDArray[np.float32]
    said: str


def words(text: str) -> list[str]:
    return re.sub(r"[^\w' ]+", " ", text.lower().replace("-", " ")).replace("'", "").split()


def errors(said: list[str], heard: list[str]) -> int:
    """Levenshtein distance in words."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def human() -> list[Clip]:
    folder = SHARED / "audio"
    if not (folder / "jfk.flac").exists():
        print(f"no recordings at {folder}: synthetic speech only", file=sys.stderr)
        return []
    sounds = {name: media.decode((folder / name).read_bytes(), RATE) for name in HUMAN}
    clips = [Clip("human clips", name, sounds[name], said) for name, said in HUMAN.items()]
    jfk = sounds["jfk.flac"]
    for (start, end), said in PHRASES.items():
        clips.append(Clip("human phrases", said, jfk[int(start * RATE) : int(end * RATE)], said))
    return clips


def synthetic() -> list[Clip]:
    from hibari import SAMPLE_RATE, Hibari

    voice = Hibari(threads=1)
    clips = []
    for seed, text in enumerate(SYNTHETIC):
        sound = soxr.resample(np.asarray(voice(text, seed=seed), np.float32), SAMPLE_RATE, RATE)
        clips.append(Clip("synthetic", text, sound.astype(np.float32), text))
    return clips


def readers() -> dict[str, Callable[[NDArray[np.float32]], str]]:
    model = whisper.Recogniser(weights.ensure(whisper.WEIGHT))
    vad = silero.Silero(weights.ensure(silero.WEIGHT))
    no_times = [*model.vocabulary.start("en"), model.vocabulary.first_time - 1]

    def naive(sound: NDArray[np.float32]) -> str:
        seconds = len(sound) / RATE
        encoded = model.encode(sound, math.ceil(seconds + reading.RIGHT_S))
        return model.decode([encoded], [no_times], [reading.TOKENS + int(reading.TOKENS_PER_S * seconds)])[0].text

    return {
        "full window": lambda sound: readings.read(reading.Reading(model, None, sound, ENGLISH, full=True)).text,
        "short, no rule": naive,
        "short": lambda sound: readings.read(reading.Reading(model, vad, sound, ENGLISH)).text,
    }


def main() -> None:
    clips = [*human(), *synthetic()]
    kinds = list(dict.fromkeys(clip.kind for clip in clips))
    rows: list[list[str]] = []
    full_time = 0.0
    mistakes: list[str] = []
    for name, read in readers().items():
        read(clips[0].sound)  # warm
        wrong: dict[str, int] = dict.fromkeys(kinds, 0)
        spent: list[float] = []
        for clip in clips:
            before = time.process_time()
            heard = read(clip.sound)
            spent.append(time.process_time() - before)
            count = errors(words(clip.said), words(heard))
            wrong[clip.kind] += count
            if count:
                mistakes.append(f"  {name}: {clip.said!r} -> {heard!r}")
        total = {kind: sum(len(words(c.said)) for c in clips if c.kind == kind) for kind in kinds}
        full_time = full_time or sum(spent)
        rows.append(
            [
                name,
                *(f"{100 * wrong[k] / total[k]:.1f} % ({wrong[k]}/{total[k]})" for k in kinds),
                f"{100 * sum(wrong.values()) / sum(total.values()):.1f} %",
                f"{1e3 * statistics.median(spent):.0f} ms",
                f"{sum(spent) / full_time:.2f}",
            ]
        )
    print(machine())
    print(table(["window", *kinds, "all", "CPU a clip (median)", "time against full"], rows))
    print("\n".join(mistakes))


if __name__ == "__main__":
    main()
