"""Silero and Smart Turn on recordings, noises and a synthetic voice, with the session's own turn policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.pipelines.ears.ears import Ears, Score
from antiphon.pipelines.ears.silero import WINDOW, Silero, Voice
from antiphon.pipelines.ears.smart_turn import SmartTurn, features
from antiphon.session.events import SpeechScored
from antiphon.session.turn import Detector, Turn
from tests.hearing.conftest import folder
from tests.hearing.sounds import RATE, Sound, hum, keyboard, pink, silence
from tests.hearing.waiting import until

pytestmark = pytest.mark.real
Clip = Callable[[str], Sound]
Say = Callable[..., Sound]
HUMANS = ("LJ001-0002.wav", "LJ001-0008.wav", "LJ001-0013.wav", "dog-or-cat.mp3", "jfk.flac")


async def scores_of(sound: Sound, answers: list[tuple[float, float]] | None = None) -> list[Score]:
    """What the ears say of it, in pieces of 20 ms; ``answers``: seconds [from, to) in which the agent speaks."""
    ears = Ears(turns=False, silero_folder=folder("silero-vad"))
    got: list[Score] = []
    ear = ears.open(got.extend)
    marks = dict(answers or [])
    for at in range(0, len(sound), 320):
        for begin, end in marks.items():
            if at <= begin * RATE < at + 320:
                ear.expect_echo(int((end - begin) * RATE))
        ear.push(sound[at : at + 320])
    await until(lambda: len(got) == len(sound) // WINDOW)
    ears.shut_down()
    return got


def decide(scores: list[Score], silence_ms: float = 500) -> list[tuple[float, Turn]]:
    """What the session's policy makes of it: (seconds received, event)."""
    detector = Detector(threshold=0.5, silence_ms=silence_ms)
    events = ((s.end, (detector.on_audio(s.end), detector.on_score(SpeechScored(*s)))) for s in scores)
    return [(end / RATE, event) for end, pair in events for event in pair if event is not None]


def started(events: list[tuple[float, Turn]]) -> list[float]:
    return [at for at, event in events if event is Turn.STARTED]


def mix(a: Sound, b: Sound, at_s: float, gain: float = 1.0) -> Sound:
    """``b`` laid over ``a`` from that second on."""
    out = a.copy()
    at = int(at_s * RATE)
    piece = b[: len(out) - at]
    out[at : at + len(piece)] += gain * piece
    return out


def level(sound: Sound) -> float:
    """Root mean square of its louder half."""
    blocks = np.sqrt(np.square(sound[: len(sound) // 320 * 320].reshape(-1, 320)).mean(axis=1))
    return float(np.sort(blocks)[len(blocks) // 2 :].mean())


def test_a_batch_scores_each_voice_as_alone(vad: Silero, clip: Clip) -> None:
    sounds = [clip(name)[: 50 * WINDOW] for name in HUMANS]
    count = min(len(s) for s in sounds) // WINDOW
    alone = [vad.scan(s[: count * WINDOW]) for s in sounds]
    voices = [Voice() for _ in sounds]
    together = np.stack([vad.score(voices, np.stack([s[i * WINDOW :][:WINDOW] for s in sounds])) for i in range(count)], axis=1)
    assert np.abs(together - np.stack(alone)).max() < 1e-5


async def test_two_sessions_interleaved_decide_as_each_alone(clip: Clip) -> None:
    sounds = [np.concatenate([silence(0.5), clip(name), silence(0.7)]) for name in ("LJ001-0013.wav", "dog-or-cat.mp3")]
    ears = Ears(turns=False, silero_folder=folder("silero-vad"))
    got: list[list[Score]] = [[], []]
    places = [ears.open(g.extend) for g in got]
    rng = np.random.default_rng(5)
    at = [0, 0]
    while any(at[i] < len(sounds[i]) for i in (0, 1)):
        i = int(rng.integers(0, 2))
        n = int(rng.integers(100, 2000))
        places[i].push(sounds[i][at[i] : at[i] + n])
        at[i] += n
    await until(lambda: all(len(g) == len(x) // WINDOW for g, x in zip(got, sounds, strict=True)))
    ears.shut_down()
    alone = [await scores_of(sound) for sound in sounds]
    for i in (0, 1):
        assert [(s.end, s.loud) for s in got[i]] == [(s.end, s.loud) for s in alone[i]]
        assert np.abs(np.array([s.p for s in got[i]]) - [s.p for s in alone[i]]).max() < 1e-5
        assert max(s.p for s in got[i]) > 0.9


@pytest.mark.parametrize("noise", ["cough", "keyboard", "pink", "hum"])
async def test_noise_starts_no_turn(noise: str, clip: Clip) -> None:
    sounds: dict[str, Callable[[], Sound]] = {
        "cough": lambda: clip("cough.wav"),
        "keyboard": lambda: keyboard(10),
        "pink": lambda: pink(10, -35),
        "hum": lambda: hum(10),
    }
    sound = np.concatenate([silence(0.5), sounds[noise](), silence(1.0)])
    assert decide(await scores_of(sound)) == []


@pytest.mark.parametrize("name", HUMANS)
async def test_a_sentence_is_one_turn_and_silence_is_dated_from_its_end(name: str, clip: Clip) -> None:
    sound = clip(name)[: int(2.2 * RATE)] if name == "jfk.flac" else clip(name)  # its pauses are longer than a turn's
    events = decide(await scores_of(np.concatenate([silence(0.5), sound, silence(1.5)])))
    assert [e for _, e in events if e in (Turn.STARTED, Turn.STOPPED)] == [Turn.STARTED, Turn.STOPPED]
    last = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())[-1]
    stopped = next(at for at, e in events if e is Turn.STOPPED)
    assert abs(stopped - (0.5 + last / RATE + 0.5)) < 0.15


async def test_the_agents_own_voice_does_not_interrupt_it_and_a_human_does(clip: Clip, say: Say) -> None:
    """A question, the answer coming back at -20 dB and 80 ms later, and eight seconds into it a human over it."""
    answer = np.concatenate([say("The weather tomorrow will be sunny with a light wind from the west. " * 2), silence(0.3)])
    human, question = clip("LJ001-0013.wav"), clip("dog-or-cat.mp3")
    human, question, answer = (0.1 / level(x) * x for x in (human, question, answer))
    room = pink(16, -65)
    heard = mix(mix(mix(room, question, 0.5), np.tile(answer, 4)[: 11 * RATE], 3.08, 0.1), human, 11.0)
    onset = int(np.flatnonzero(np.abs(human) > 0.05 * np.abs(human).max())[0])
    starts = started(decide(await scores_of(heard, [(3.0, 14.3)])))
    assert len([at for at in starts if at < 3.0]) == 1
    assert [at for at in starts if 3.0 <= at < 11.0] == [], "its own echo interrupted it"
    assert starts[1:] and starts[1] - (11.0 + onset / RATE) <= 0.150
    assert len(started(decide(await scores_of(heard)))) > 2, "the echo is not heard at all: the test proves nothing"


def scored_to(got: list[Score], sample: int) -> Callable[[], bool]:
    return lambda: bool(got) and got[-1].end > sample


async def onsets(human: Sound, between: Callable[[int], Sound], rounds: int) -> list[int]:
    """Samples from each beginning of ``human`` to the end of the first window that hears it, in one long stream."""
    ears = Ears(turns=False, silero_folder=folder("silero-vad"))
    got: list[Score] = []
    ear = ears.open(got.extend)
    found: list[int] = []
    total = 0
    for i in range(rounds):
        quiet = between(i)
        got.clear()
        ear.push(np.concatenate([quiet, human]))
        at = total + len(quiet)
        total = at + len(human)
        await until(scored_to(got, total - WINDOW), 60)
        found.append(next(s.end for s in got if s.p > 0.5 and s.end > at) - at)
    ears.shut_down()
    return found


async def test_the_onset_delay_after_half_an_hour_is_as_at_the_start(clip: Clip) -> None:
    """30 simulated minutes in one stream: every minute a sentence, and digital silence."""
    delays = await onsets(clip("LJ001-0013.wav"), lambda i: silence(57.4 + 0.003 * i), 30)
    assert max(delays[-5:]) - min(delays[:5]) <= 2 * WINDOW


@pytest.mark.slow
async def test_the_onset_delay_after_half_an_hour_of_noise_is_as_at_the_start(clip: Clip) -> None:
    delays = await onsets(clip("LJ001-0013.wav"), lambda i: pink(27.4, -60, i), 60)
    assert max(delays[-5:]) - min(delays[:5]) <= 2 * WINDOW


def test_smart_turn_ranks_whole_sentences_above_ones_cut_inside_a_phrase(smart_turn_net: SmartTurn, clip: Clip) -> None:
    """Cut by hand inside a phrase: "than in the same |", "in being |", "Should I get a |", "... ask not what your |"."""
    cuts = {"LJ001-0013.wav": 1.0, "LJ001-0002.wav": 0.75, "dog-or-cat.mp3": 0.85, "jfk.flac": 6.3}
    whole, cut = [], []
    for name, at in cuts.items():
        sound = clip(name)
        whole.append(np.concatenate([sound, silence(0.2)]))
        cut.append(np.concatenate([sound[: int(at * RATE)], silence(0.2)]))
    scores = smart_turn_net.score([*whole, *cut])
    right = sum(w > c for w, c in zip(scores[:4], scores[4:], strict=True))
    assert right >= 3, f"whole {scores[:4]}, cut {scores[4:]}"


def test_smart_turn_scores_a_batch_as_each_alone(smart_turn_net: SmartTurn, clip: Clip) -> None:
    sounds: list[NDArray[np.float32]] = [clip(name) for name in HUMANS[:3]]
    together = smart_turn_net.score(sounds)
    assert np.allclose(together, [smart_turn_net.score([s])[0] for s in sounds], atol=1e-3)


def test_smart_turn_hears_the_last_eight_seconds() -> None:
    sound = pink(10, -30)
    assert np.array_equal(features(sound), features(sound[-8 * RATE :]))
    assert features(sound[:100]).shape == (80, 800)
    assert features(np.zeros(0, np.float32)).shape == (80, 800)


async def test_a_turn_is_scored_through_the_ears(clip: Clip) -> None:
    ears = Ears(silero_folder=folder("silero-vad"), turn_folder=folder("smart-turn-v3.2"))
    ear = ears.open(lambda scores: None)
    told: list[float | None] = []
    for _ in range(3):
        ear.score_turn(clip("LJ001-0008.wav"), told.append)
    await until(lambda: len(told) == 3)
    ears.shut_down()
    assert all(p is not None and p > 0.5 for p in told)
    assert ears.stats()["turns"] == 3
