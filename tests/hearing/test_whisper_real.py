"""The recogniser on recordings, synthetic speech and noise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.reading import Phase, Reading
from antiphon.pipelines.local.readings import advance, read
from antiphon.pipelines.outputs import TranscriptResult
from antiphon.pipelines.requests import Transcription
from tests.hearing.sounds import RATE, Sound, hum, keyboard, pink, silence
from tests.hearing.words import errors, words

pytestmark = pytest.mark.real

SAID = {
    "LJ001-0002.wav": "in being comparatively modern",
    "LJ001-0008.wav": "has never been surpassed",
    "dog-or-cat.mp3": "should i get a dog or a cat",
    "jfk.flac": "and so my fellow americans ask not what your country can do for you ask what you can do for your country",
}
ENGLISH = Transcription(language="en")
Hear = Callable[..., TranscriptResult]


@pytest.fixture
def hear(recogniser: Any, vad: Any) -> Hear:
    return lambda sound, options=ENGLISH: read(Reading(recogniser, vad, sound, options))


def test_human_clips_are_read_whole_and_once(hear: Hear, clip: Callable[[str], Sound]) -> None:
    for name, said in SAID.items():
        assert errors(said, hear(clip(name)).text) == 0, name


@pytest.mark.parametrize(
    "text", ["Stop.", "What is the capital of France?", "Turn off the lights in the kitchen.", "Is it safe to swim in the sea?"]
)
def test_synthetic_speech_has_no_repeated_tail(text: str, hear: Hear, say: Callable[..., Sound]) -> None:
    assert words(hear(say(text)).text) == words(text)


@pytest.mark.parametrize("noise", ["silence", "room", "pink", "keyboard", "hum", "cough"])
def test_nothing_is_heard_where_nobody_speaks(noise: str, hear: Hear, clip: Callable[[str], Sound]) -> None:
    sounds: dict[str, Callable[[], Sound]] = {
        "silence": lambda: silence(5),
        "room": lambda: pink(5, -70),
        "pink": lambda: pink(5, -35),
        "keyboard": lambda: keyboard(5),
        "hum": lambda: hum(5),
        "cough": lambda: clip("cough.wav"),
    }
    assert hear(sounds[noise]()) == TranscriptResult("", "en", pytest.approx(len(sounds[noise]()) / RATE))


def test_no_samples_and_a_handful(hear: Hear) -> None:
    assert hear(np.zeros(0, np.float32)).text == ""
    assert hear(np.full(10, 0.5, np.float32)).text == ""


def test_keywords_and_prompt_really_bias(hear: Hear, say: Callable[..., Sound]) -> None:
    sound = say("Open the Grafana dashboard.")
    assert "Grafana" not in hear(sound).text
    assert "Grafana dashboard" in hear(sound, Transcription(language="en", keywords=("Grafana", "Istio"))).text
    assert "Grafana dashboard" in hear(sound, Transcription(language="en", prompt="We looked at Grafana yesterday.")).text


def test_a_long_recording_keeps_its_order_its_times_and_its_words(
    hear: Hear, clip: Callable[[str], Sound], say: Callable[..., Sound]
) -> None:
    """Half a minute with a pause of four seconds in it, cut in windows."""
    parts = [clip("jfk.flac"), silence(4), say("The quick brown fox jumps over the lazy dog."), silence(0.4), clip("jfk.flac")]
    result = hear(np.concatenate(parts), Transcription(words=True))
    said = f"{SAID['jfk.flac']} the quick brown fox jumps over the lazy dog {SAID['jfk.flac']}"
    assert errors(said, result.text) <= 2
    assert result.language == "en"
    assert result.duration == pytest.approx(sum(map(len, parts)) / RATE)
    starts = [s.start for s in result.segments]
    assert starts == sorted(starts) and all(s.start < s.end <= result.duration for s in result.segments)
    assert " ".join(words(" ".join(s.text for s in result.segments))) == " ".join(words(result.text))
    assert [words(w.word) for w in result.words] == [[w] for w in words(result.text)]
    assert all(a.end <= b.start + 1e-6 for a, b in pairwise(result.words))
    fox = next(w for w in result.words if w.word == "fox")
    begins = (len(parts[0]) + len(parts[1])) / RATE
    assert begins + 0.5 < fox.start < fox.end < begins + 2.0
    americans = next(w for w in result.words if words(w.word) == ["americans"])
    assert americans.end == pytest.approx(2.1, abs=0.35)  # the recording's first pause begins at 2.1 s


def test_verbose_fields(hear: Hear, clip: Callable[[str], Sound]) -> None:
    (segment,) = hear(clip("LJ001-0008.wav")).segments
    assert -1 < segment.avg_logprob < 0 and 0 <= segment.no_speech_prob < 0.5
    assert 0.5 < segment.compression_ratio < 2 and segment.temperature == 0.0
    assert segment.tokens and segment.seek == 0


def test_several_at_once_are_each_read_as_alone(
    recogniser: Any, vad: Any, say: Callable[..., Sound], clip: Callable[[str], Sound]
) -> None:
    sounds = [say("Could you repeat that, please?"), say("No, that is not what I meant."), clip("LJ001-0008.wav")]
    alone = [read(Reading(recogniser, vad, s, ENGLISH)) for s in sounds]
    together = [Reading(recogniser, vad, s, ENGLISH) for s in sounds]
    steps = 0
    while left := [r for r in together if r.phase is not Phase.DONE]:
        advance(left)
        steps += 1
    assert [r.result() for r in together] == alone
    assert steps < 3 * 3, "their windows were decoded together"


def test_an_unsure_window_is_read_again_in_full(recogniser: Any, vad: Any, clip: Callable[[str], Sound]) -> None:
    """A reading that ran into its limit does not stand: the full window takes its place."""
    reading = Reading(recogniser, vad, clip("LJ001-0008.wav"), ENGLISH)
    reading.cap = lambda piece: 3 if piece.tries == 0 else 40  # type: ignore[method-assign]
    result = read(reading)
    assert reading.retries == 1
    assert errors(SAID["LJ001-0008.wav"], result.text) == 0


def test_the_language_is_detected_or_refused_by_name(hear: Hear, clip: Callable[[str], Sound]) -> None:
    assert hear(clip("jfk.flac"), Transcription()).language == "en"
    with pytest.raises(Refused, match="'xx'"):
        hear(clip("jfk.flac"), Transcription(language="xx"))


def test_a_short_word_does_not_change_the_language(recogniser: Any, vad: Any, say: Callable[..., Sound]) -> None:
    """ "Continue." after a Korean conversation is not proof of anything; after an English one it is English."""
    assert read(Reading(recogniser, vad, say("Continue."), Transcription(), expected="en")).language == "en"


def test_words_of_a_language_without_spaces(recogniser: Any) -> None:
    vocabulary = recogniser.vocabulary
    ids = vocabulary._tokenizer.encode("今天天气很好。", add_special_tokens=False).ids
    found = vocabulary.words(ids, "zh")
    assert "".join(text for text, _ in found) == "今天天气很好。"
    assert sum(count for _, count in found) == len(ids)
    assert found[-1][0].endswith("。") and len(found) >= 4
