"""Talker and Code2Wav on the real net, against the package that it comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.segmenter import Segmenter
from antiphon.pipelines.outputs import AudioResult, Mark
from antiphon.pipelines.requests import Voice
from antiphon.pipelines.stage import Chunk, Ready
from tests.pipelines.local.driver import Collector, Emitted, chain, request

pytestmark = pytest.mark.real
SENTENCES = (
    "Hello there.",
    "No?",
    "The quick brown fox jumps over the lazy dog.",
    "At 10:30, Dr. Smith paid 3.14 dollars, in 2024!",
)


def code2wav(**blocks: int) -> Any:
    from antiphon.pipelines.local.code2wav import Code2Wav

    return Code2Wav(**blocks)


def speak(talker: Any, text: str, *, speed: float = 1.0, blocks: Any = None, longest: int = 120, **params: Any) -> Emitted:
    asked = request(text, task="speech", voice=Voice(speed=speed), stage_params={"talker": params} if params else {})
    said = chain([Segmenter(longest=longest), talker, blocks or code2wav()], asked)
    assert said.error is None
    return said


def wave(said: Emitted) -> NDArray[np.float32]:
    return np.concatenate([chunk.pcm for chunk in said.chunks])


def marks(said: Emitted) -> list[Mark]:
    return [mark for chunk in said.chunks for mark in chunk.marks]


@pytest.mark.parametrize("text", SENTENCES)
@pytest.mark.parametrize("speed", [1.0, 0.5, 1.5])
def test_streamed_equals_the_package(plain_talker: Any, hibari: Any, text: str, speed: float) -> None:
    said = speak(plain_talker, text, speed=speed, seed=11, longest=400)
    whole = hibari(text, speed=speed, seed=11)
    assert len(wave(said)) == len(whole)
    assert np.abs(wave(said) - whole).max() <= 1e-6


def test_several_sentences_draw_on_one_noise_as_the_package_does(plain_talker: Any, hibari: Any) -> None:
    text = "Hello there. How are you? Fine, thanks!"
    assert np.abs(wave(speak(plain_talker, text, seed=3)) - hibari(text, seed=3)).max() <= 1e-6


@pytest.mark.parametrize(("first", "then"), [(1, 1), (4, 16), (7, 3), (1000, 1000)])
def test_any_blocks_give_the_same_samples(plain_talker: Any, hibari: Any, first: int, then: int) -> None:
    said = speak(plain_talker, SENTENCES[0], seed=5, blocks=code2wav(first=first, then=then))
    assert np.abs(wave(said) - hibari(SENTENCES[0], seed=5)).max() <= 1e-6


@pytest.mark.parametrize("text", SENTENCES)
def test_trimmed_is_a_part_of_the_whole_and_loses_no_sound(talker: Any, hibari: Any, text: str) -> None:
    heard, whole = wave(speak(talker, text, seed=2)), hibari(text, seed=2)
    offsets = range(0, len(whole) - len(heard) + 1, 300)
    at = min(offsets, key=lambda offset: float(np.abs(whole[offset : offset + len(heard)] - heard).max()))
    assert np.abs(whole[at : at + len(heard)] - heard).max() <= 1e-6
    assert at >= 0.1 * 24_000, "the net's leading silence is not waited for"
    lost = np.concatenate([whole[:at], whole[at + len(heard) :]])
    assert np.abs(lost).max() < 10 ** (-50 / 20)


def test_first_chunk_is_short_and_holds_sound_soon(talker: Any) -> None:
    said = speak(talker, SENTENCES[2])
    assert len(said.chunks[0].pcm) == 4 * 300
    assert all(len(chunk.pcm) <= 16 * 300 for chunk in said.chunks)
    assert np.abs(wave(said)[: int(0.15 * 24_000)]).max() > 0.02


def test_spans_are_the_playing_time_and_the_result_counts_the_samples(talker: Any) -> None:
    said = speak(talker, "One sentence. Another, longer one.")
    assert said.spans == [len(chunk.pcm) / 24 for chunk in said.chunks]
    assert said.result == AudioResult(len(wave(said)))
    assert all(chunk.pcm.dtype == np.float32 for chunk in said.chunks)
    talked = chain([Segmenter(), talker], request("One sentence. Another, longer one.", task="speech"))
    assert sum(talked.spans) == pytest.approx(sum(said.spans))


def test_no_click_at_a_seam(talker: Any) -> None:
    """Field notes 3.1 (b): the step across each chunk's edge against the steps inside chunks."""
    text = "Of course I can. It depends on the weather. The quick brown fox jumps over the lazy dog."
    said = speak(talker, text)
    steps = np.abs(np.diff(wave(said)))
    edges = np.cumsum([len(chunk.pcm) for chunk in said.chunks])[:-1] - 1
    assert steps[edges].max() <= np.delete(steps, edges).max()
    assert np.median(steps[edges]) <= np.quantile(np.delete(steps, edges), 0.9)
    talked = chain([Segmenter(), talker], request(text, task="speech"))
    between = np.cumsum([(frames.stop - frames.start) * 300 for frames in talked.chunks])[:-1] - 1
    assert len(between) >= 2
    assert steps[between].max() < 1e-3, "clauses meet in silence"


def test_marks_are_exact_word_by_word(plain_talker: Any, hibari: Any) -> None:
    """Against the net's own durations (where the last phoneme of a word ends) and the audio (where the sound ends)."""
    text = "Hello, my friend."
    phonemes = hibari.g2p(text)
    feed = {"ids": np.array([hibari.ids(phonemes)]), "speed": np.ones(1, np.float32)}
    steps = np.cumsum(plain_talker._net.run(None, feed)[-1]) * 600
    said = speak(plain_talker, text)
    assert phonemes == "həlˈO, mI fɹˈɛnd."  # the pad comes first: "Hello" is ids 1-5, "my" 8-9, "friend" 11-16
    assert [text[: mark.text_offset] for mark in marks(said)] == ["Hello,", "Hello, my", text]
    assert [mark.sample for mark in marks(said)[:2]] == [steps[5], steps[9]]
    loud = np.nonzero(np.abs(wave(said)) > 0.003)[0]
    assert loud[-1] <= marks(said)[-1].sample <= min(steps[16], loud[-1] + 0.1 * 24_000)
    assert all(chunk.exact for chunk in said.chunks)


def test_marks_of_rewritten_words_stay_at_the_word_of_the_source(talker: Any) -> None:
    text = "It is **10:30**, 3.14 and 1,5 € 😀 for a@b.co now. Bye!"
    said = speak(talker, text)
    ends = [text[: mark.text_offset] for mark in marks(said)]
    assert ends == [text[: text.index(word) + len(word)] for word in
                    ("It", "is", "10:30**,", "3.14", "and", "1,5", "€", "for", "a@b.co", "now.", "Bye!")]  # fmt: skip
    samples = [mark.sample for mark in marks(said)]
    assert samples == sorted(set(samples))
    assert samples[-1] <= said.result.samples


def test_marks_lie_in_their_chunk(talker: Any) -> None:
    said = speak(talker, "One sentence is here. Another, longer one follows it.")
    end = 0
    for chunk in said.chunks:
        begin, end = end, end + len(chunk.pcm)
        assert all(begin < mark.sample <= end for mark in chunk.marks)


def test_speed_changes_the_time(talker: Any) -> None:
    lengths = {speed: len(wave(speak(talker, SENTENCES[2], speed=speed))) for speed in (0.25, 0.5, 1.0, 2.0, 4.0)}
    assert lengths[1.0] / lengths[0.5] == pytest.approx(0.5, rel=0.15)
    assert lengths[1.0] / lengths[0.25] == pytest.approx(0.25, rel=0.15)
    assert lengths[1.0] / lengths[2.0] == pytest.approx(2.0, rel=0.2)
    assert lengths[1.0] / lengths[4.0] == pytest.approx(4.0, rel=0.25)


def test_same_request_same_samples_and_another_seed_others(talker: Any) -> None:
    one, two, other = (wave(speak(talker, SENTENCES[0], seed=seed)) for seed in (4, 4, 5))
    assert np.array_equal(one, two)
    assert len(one) == len(other) and not np.array_equal(one, other)


def test_interleaved_requests_give_what_they_give_alone(talker: Any) -> None:
    """Three requests on one lane, stepped in batches: each says what it says alone."""
    spoken = ["One sentence. And another.", "Quite a different one, with a comma.", "Third!"]
    alone = [wave(speak(talker, text)) for text in spoken]
    asked = [request(text, task="speech") for text in spoken]
    stages = [Segmenter(), talker, code2wav()]
    out = Collector()
    tasks = [[stage.open(one, None) for one in asked] for stage in stages]
    fed = {id(task): 0 for row in tasks for task in row}
    ended: set[int] = set()
    for _ in range(2000):
        for depth, stage in enumerate(stages):
            ready = []
            for column, task in enumerate(tasks[depth]):
                if out.of(task).ended:
                    continue
                state = stage.poll(task, 0.0)
                if depth and state.hungry:
                    above = out.of(tasks[depth - 1][column])
                    if fed[id(task)] < len(above.chunks):
                        stage.feed(task, Chunk("up", 0, above.chunks[fed[id(task)]]))
                        fed[id(task)] += 1
                    elif above.ended and id(task) not in ended:
                        stage.feed(task, Chunk("up", 0, None, last=True))
                        ended.add(id(task))
                if isinstance(stage.poll(task, 0.0), Ready):
                    ready.append(task)
            if ready:
                stage.step(ready, out)
        if all(out.of(task).ended for task in tasks[-1]):
            break
    for task, expected in zip(tasks[-1], alone, strict=True):
        assert np.array_equal(wave(out.of(task)), expected)


def test_text_without_a_sound_says_nothing(talker: Any) -> None:
    from antiphon.pipelines.outputs import TextDelta

    said = chain([Segmenter(), talker, code2wav()], request(), [TextDelta("你好。 😀")])
    assert said.chunks == [] and said.result == AudioResult(0)


def test_clause_of_many_words_is_drawn_in_several_runs(talker: Any) -> None:
    """Digits are read as long words: a clause whose reading is long is still short steps."""
    said = chain([Segmenter(), talker], request("1234567 2345678 3456789 4567891 5678912 6789123 7891234.", task="speech"))
    assert len(said.chunks) > 1
    assert all(frames.spectra.shape[2] <= 1600 for frames in said.chunks)


def test_stage_params_are_checked(talker: Any) -> None:
    for params, told in (({"sed": 1}, "no 'sed'"), ({"seed": -1}, "whole number"), ({"seed": "x"}, "whole number")):
        with pytest.raises(Refused, match=told):
            talker.open(request("Hi", task="speech", stage_params={"talker": params}), None)
