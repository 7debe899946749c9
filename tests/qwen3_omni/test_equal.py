"""Our stages against transformers' ``generate()``: ids, all sixteen codebooks and the waveform."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.encoders import AudioEncoder, ImageEncoder
from antiphon.pipelines.qwen3_omni.payloads import Heard, Prompt, Said, Seen
from antiphon.pipelines.qwen3_omni.talker import Talker
from antiphon.pipelines.qwen3_omni.thinker import Thinker
from antiphon.pipelines.qwen3_omni.vocoder import Voice
from antiphon.pipelines.requests import GenerateRequest, Sampling
from antiphon.pipelines.stage import Chunk, Ready, Request, Wait
from tests.qwen3_omni.cases import CASES
from tests.qwen3_omni.driver import Bench, Made, Sink
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.tiny import CODEBOOK, GROUPS

TOLERANCE = 2e-5
SAMPLES_PER_FRAME = 1920
UNFINISHED = 555
Expected = Callable[[str], Answer]
Ask = Callable[..., GenerateRequest]


def assert_equal(made: Made, answer: Answer) -> None:
    said = list(made.tokens)
    if made.finished is not None and made.finished.token >= 0:
        said.append(made.finished.token)
    assert said == (answer.tokens if len(said) == len(answer.tokens) else answer.tokens[:-1])
    assert made.codes == answer.codes
    assert len(made.wave) == len(answer.wave) == SAMPLES_PER_FRAME * len(answer.codes) - UNFINISHED
    assert np.abs(made.wave - answer.wave).max() < TOLERANCE


@pytest.mark.parametrize("name", list(CASES))
def test_equals_generate(name: str, bench: Bench, expected: Expected, ask: Ask) -> None:
    answer = expected(name)
    made = bench.run([ask(name)])[name]
    assert_equal(made, answer)
    assert made.finished is not None and made.finished.completion_tokens == len(answer.tokens)
    if name == "image":
        assert made.finished.reason == "stop" and len(answer.tokens) < 30
    if name == "natural end":
        assert made.spoken is not None and made.spoken.reason == "stop" and len(answer.codes) < 35


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 10), (5, 25)])
def test_any_cutting_gives_the_same_samples(first: int, then: int, bench: Bench, oracle: Oracle) -> None:
    """76 frames, more than the window of 72, against one whole decode; a voice out of step shares the forwards."""
    frames = 76
    codes = torch.randint(0, CODEBOOK, (frames, GROUPS), generator=torch.Generator().manual_seed(7))
    with torch.inference_mode():
        whole = oracle.model.code2wav(codes.t()[None])[0, 0].numpy()
    voices, made = [Voice(), Voice()], []
    bench.code2wav.vocoder.push(voices[1:], [codes[:13].tolist()])
    for start, end in itertools.pairwise([*range(0, first, first), *range(first, frames, then), frames]):
        cut = codes[start:end].tolist()
        made.append(bench.code2wav.vocoder.push(voices, [cut, cut])[0])
    wave = np.concatenate(made)
    assert len(made[0]) == SAMPLES_PER_FRAME * first - UNFINISHED
    assert len(wave) == len(whole) == SAMPLES_PER_FRAME * frames - UNFINISHED
    assert np.abs(wave - whole).max() < TOLERANCE


def test_chunk_sizes_are_a_request_s_own(bench: Bench, expected: Expected, ask: Ask) -> None:
    made = bench.run([ask("text", code2wav={"first_chunk_frames": 3, "chunk_frames": 7})])["text"]
    assert_equal(made, expected("text"))
    assert [len(p) for p in made.pieces[:2]] == [SAMPLES_PER_FRAME * 3 - UNFINISHED, SAMPLES_PER_FRAME * 7]
    assert len(made.codes) == 3 + 2 * 7  # whole chunks: the end is known only after the last of them
    assert made.marks[-1].sample == len(made.wave)


BATCH = ("text", "turns", "audio and image", "sampled")


def test_rows_of_a_batch_equal_their_single_runs(bench: Bench, expected: Expected, ask: Ask) -> None:
    made = bench.run([ask(name) for name in BATCH])
    for name in BATCH:
        assert_equal(made[name], expected(name))


def test_an_aborted_neighbour_changes_nothing(bench: Bench, expected: Expected, ask: Ask) -> None:
    """Its pages go to a request that arrives then."""
    late = "two tokens"
    made = bench.run([ask(name) for name in (*BATCH, late)], abort={"turns": 5}, late={late: 9})
    assert made["turns"].aborted and len(made["turns"].codes) < len(expected("turns").codes)
    for name in ("text", "audio and image", "sampled", late):
        assert_equal(made[name], expected(name))
    assert not bench.thinker.decoder.cache.promised and not bench.talker.decoder.cache.promised


@pytest.mark.parametrize("name", ["audio and image", "video with sound"])
def test_a_sliced_prefill_equals_a_whole_one(name: str, bench: Bench, expected: Expected, ask: Ask) -> None:
    """Slices of five tokens cut through media places, and through user turns at the talker."""
    thinker, talker = bench.thinker.slice, bench.talker.slice
    bench.thinker.slice = bench.talker.slice = 5
    try:
        assert_equal(bench.run([ask(name)])[name], expected(name))
    finally:
        bench.thinker.slice, bench.talker.slice = thinker, talker


def test_audio_leaves_before_the_last_token(bench: Bench, ask: Ask) -> None:
    order = bench.run([ask("text")])["text"].order
    assert order.index("audio") < len(order) - 1 - order[::-1].index("token")
    # Frame 0 follows the first token at once: one token, one frame, alternating from there on.
    assert order[:2] == ["token", "frame"]


def test_a_request_that_arrives_is_served_at_once(bench: Bench, ask: Ask) -> None:
    """Joining while others are in the middle of their answers costs it no round more than being alone."""
    alone = bench.run([ask("two tokens", id="late")])["late"]
    made = bench.run([ask("turns"), ask("chelsie"), ask("two tokens", id="late")], late={"late": 4})
    assert made["late"].order == alone.order


def test_half_precision_runs_through(folder: str, ask: Ask) -> None:
    """bfloat16 for what thinks and speaks, as on a GPU: no equality is claimed, only that nothing breaks."""
    half = Bench(folder)
    half.thinker = Thinker(folder, dtype="bfloat16")
    half.talker = Talker(folder, dtype="bfloat16")
    half.audio_encoder = AudioEncoder(folder, dtype="bfloat16")
    half.image_encoder = ImageEncoder(folder, dtype="bfloat16")
    short = {"max_tokens": 6}
    made = half.run([ask("audio and image", talker=short), ask("sampled", talker=short)])
    for answer in made.values():
        assert len(answer.codes) == 5 and np.isfinite(answer.wave).all() and answer.text


def test_a_speech_that_cannot_begin_fails_alone(bench: Bench, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """One user's turns are too long for the talker, another's features do not fit its prompt: their neighbours go on."""
    tasks = []
    for name in ("turns", "two tokens"):
        body = ask(name)
        task = bench.talker.open(Request(id=name, terminals=body.terminals, body=body), None)
        prompt = Prompt(bench.thinker_input(body).ids)
        bench.talker.feed(task, Chunk("thinker", 0, Said(70, prompt)))
        tasks.append(task)
    rows = [len(bench.talker.input.prefill(t.prompt, 70, t.voice).rows) for t in tasks]
    monkeypatch.setattr(bench.talker, "context", (rows[0] + rows[1]) // 2)
    sink = Sink()
    sink.collects = True
    bench.talker.step(tasks, sink)
    for task in tasks:
        bench.talker.close(task, "failed")
    assert [(task, type(error)) for task, error in sink.failures] == [(tasks[0], Refused)]
    assert [task for task, _ in sink.chunks] == [tasks[1]]
    good, bad = (asyncio.run(bench.preprocessing.prepare(ask(name))) for name in ("text", "image"))
    sink = Sink()
    sink.collects = True
    bench.aggregate.step([(bad, Heard(), Seen()), (good, Heard(), Seen())], sink)
    assert "image places" in str(sink.failures[0][1]) and len(sink.results) == 1


def test_an_empty_answer_is_no_speech(bench: Bench, ask: Ask, expected: Expected) -> None:
    """The Thinker ends at once: no frame, no sample, no failure (transformers raises there)."""
    made = bench.run([ask("text", thinker={"stop_token_ids": [expected("text").tokens[0]]})])["text"]
    assert made.tokens == [] and made.codes == [] and len(made.wave) == 0 and made.text == ""
    assert made.spoken is not None and made.spoken.frames == 0
    assert made.text_result is not None and made.text_result.finish_reason == "stop"


def test_one_allowed_token_is_shown_and_not_spoken(bench: Bench, ask: Ask, oracle: Oracle, expected: Expected) -> None:
    made = bench.run([ask("text", sampling=Sampling(max_tokens=1))])["text"]
    first = expected("text").tokens[0]
    assert made.text == oracle.tok.decode([first]) and len(made.wave) == 0
    assert made.text_result is not None and made.text_result.finish_reason == "length"


def test_a_row_with_sound_in_hand_waits_for_its_neighbours(bench: Bench, ask: Ask) -> None:
    """One step for both; never longer than its listener can spare."""
    talker = bench.talker
    ahead, behind = (talker.open(Request(id=name, terminals=("audio",), body=ask("text", id=name)), None) for name in "ab")
    for task in (ahead, behind):
        task.carried = torch.zeros(1)
    ahead.over, ahead.frames, ahead.began = True, 15, 100.0
    try:
        # Chunks of 2 and of 10 frames have gone: 12 x 80 ms sound until 100.96.
        behind.stepped = 100.25
        verdict = talker.poll(ahead, 100.3)
        assert isinstance(verdict, Wait) and verdict.until == pytest.approx(100.35)
        assert isinstance(talker.poll(ahead, 100.36), Ready), "its neighbour's text does not come"
        behind.stepped = 100.7
        verdict = talker.poll(ahead, 100.7)
        assert isinstance(verdict, Wait) and verdict.until == pytest.approx(100.96 - 0.25)
        assert isinstance(talker.poll(ahead, 100.72), Ready), "it has no more to spare"
        ahead.frames, behind.stepped = 1, 100.25
        assert isinstance(talker.poll(ahead, 100.0), Ready), "nothing sounds yet"
        ahead.frames = 15
        behind.text.append(1)
        assert isinstance(talker.poll(ahead, 100.3), Ready), "now they go together"
    finally:
        for task in (ahead, behind):
            talker.close(task, "aborted")
