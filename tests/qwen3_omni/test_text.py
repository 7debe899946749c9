"""Text: characters from tokens, stop strings that are never shown, marks, parameters by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from antiphon.pipelines.engines.torch.paged import PAGE, PagedCache
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.sampling import Sampler, choose
from antiphon.pipelines.engines.torch.sampling import Sampling as Parameters
from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.outputs import Mark
from antiphon.pipelines.qwen3_omni import params
from antiphon.pipelines.qwen3_omni.detokenizer import Detokenizer, read_tokenizer
from antiphon.pipelines.qwen3_omni.marks import CHARACTERS_PER_SECOND, SpeechMarks
from antiphon.pipelines.qwen3_omni.stops import StopScan
from antiphon.pipelines.requests import GenerateRequest, Sampling, Voice
from tests.qwen3_omni.driver import Bench

Ask = Callable[..., GenerateRequest]
TRICKY = "Grüße, 你好! 🎉🎉 naïve — «ok»\n\tdone"


def test_the_chat_template_may_stand_beside_the_tokenizer(folder: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    template = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(WeightError, match="no chat template"):
        read_tokenizer(str(copy))
    (copy / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert read_tokenizer(str(copy)).chat_template == template
    with pytest.raises(WeightError, match="no readable tokenizer"):
        read_tokenizer(str(tmp_path))


def test_a_tokenizer_as_the_published_checkpoints_hold_it(folder: str, tmp_path: Path) -> None:
    """Words, merges and settings in files of their own, the added tokens among the settings, no tokenizer.json."""
    whole = json.loads((Path(folder) / "tokenizer.json").read_text())
    merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in whole["model"]["merges"])
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in whole["added_tokens"]},
        "additional_special_tokens": [t["content"] for t in whole["added_tokens"] if t["special"]],
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
    }
    (tmp_path / "vocab.json").write_text(json.dumps(whole["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    template = (Path(folder) / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    theirs, ours = read_tokenizer(str(tmp_path)), read_tokenizer(folder)
    text = f"<|im_start|>user\n{TRICKY}<|audio_start|><|audio_pad|><|audio_end|><tool_call>hello</tool_call><|im_end|>\n"
    assert theirs(text)["input_ids"] == ours(text)["input_ids"]
    assert theirs.decode(ours(text)["input_ids"], skip_special_tokens=True).endswith("<tool_call>hello</tool_call>\n")


def test_characters_come_whole_and_all(folder: str) -> None:
    tok = read_tokenizer(folder)
    ids = tok.encode(TRICKY)
    assert len(ids) > len("Grüße")  # bytes of the rarer characters are tokens of their own
    text = Detokenizer(tok)
    pieces = [text.add(i) for i in ids]
    assert "".join(pieces) + text.flush() == TRICKY
    assert all("\ufffd" not in piece for piece in pieces)


def test_what_is_broken_at_the_end_is_shown_as_such(folder: str) -> None:
    tok = read_tokenizer(folder)
    ids = tok.encode("a🎉")[:-1]
    text = Detokenizer(tok)
    assert "".join(map(text.add, ids)) == "a" and text.flush() == "\ufffd"
    assert text.flush() == ""


def test_special_tokens_are_silent(folder: str) -> None:
    tok = read_tokenizer(folder)
    text = Detokenizer(tok)
    ids = [*tok.encode("a"), tok.convert_tokens_to_ids("<tts_pad>"), *tok.encode("b")]
    assert "".join(map(text.add, ids)) + text.flush() == "ab"


@pytest.mark.parametrize(
    ("said", "stops", "shown"),
    [
        ("the quick brown fox", ("brown",), "the quick "),
        ("the quick brown fox", ("own f", "fox"), "the quick br"),
        ("the the that", ("thx", "hat"), "the the t"),
        ("the quick brown fox", ("cat",), "the quick brown fox"),
        ("aaab", ("aab",), "a"),
        ("the end", ("end of it",), "the end"),
    ],
)
def test_stop_strings(folder: str, said: str, stops: tuple[str, ...], shown: str) -> None:
    """Wherever the tokens cut it: letter by letter here."""
    tok = read_tokenizer(folder)
    ids = [i for letter in said for i in tok.encode(letter)]
    scan = StopScan(stops, Detokenizer(tok))
    sent: list[int] = []
    for token in ids:
        sent += scan.push(token)
        assert shown.startswith(tok.decode(sent))
        if scan.hit is not None:
            break
    else:
        sent += scan.flush()
    assert tok.decode(sent) + (scan.hit or "") == shown


def test_a_stop_string_is_neither_shown_nor_spoken(bench: Bench, ask: Ask, expected: Callable[[str], Any]) -> None:
    tok = bench.decode.tokenizer
    answer = expected("text")
    whole = tok.decode(answer.tokens)
    stop = whole[4:7]
    asked = ask("text", sampling=Sampling(max_tokens=12, stop=(stop,)))
    made = bench.run([asked])["text"]
    assert made.text == whole[: whole.index(stop)]
    assert made.finished is not None and made.finished.reason == "stop"
    assert made.text.startswith(tok.decode(made.tokens))


def test_marks_are_paced_words_and_end_with_the_speech() -> None:
    marks = SpeechMarks()
    marks.hand_over("One two ", 0)
    marks.hand_over("three", 1920)
    second = int(24_000 / CHARACTERS_PER_SECOND)
    assert marks.until(3 * second - 1) == ()
    assert marks.until(3 * second) == (Mark(3 * second, 3),)  # "One", after three characters at the pace
    assert marks.until(100_000) == (Mark(7 * second, 7),)  # "three" is not known to be said: its word has not ended
    assert marks.end(120_000) == (Mark(120_000, 13),)
    # Text that was handed over late was said late, however few its characters.
    late = SpeechMarks()
    late.hand_over("a b", 50_000)
    assert late.until(49_999) == () and late.until(50_000) == (Mark(50_000, 1),)
    wide = SpeechMarks()
    wide.hand_over("你好", 0)
    assert [m.text_offset for m in wide.until(24_000)] == [1, 2]
    assert SpeechMarks().end(0) == ()


def test_parameters_by_name(ask: Ask) -> None:
    assert params.thinker_params(ask("text"), {}).sampling.temperature == 0
    assert params.thinker_params(ask("text", sampling=Sampling(top_p=0.5)), {}).sampling.temperature == 1.0
    ours = {"temperature": 0.7, "top_k": 20}
    kept = params.thinker_params(ask("text", sampling=Sampling(top_p=0.5)), ours).sampling
    assert (kept.temperature, kept.top_k, kept.top_p) == (0.7, 20, 0.5)
    last = params.thinker_params(ask("text", sampling=Sampling(temperature=0.5), thinker={"temperature": 0.1}), ours)
    assert last.sampling.temperature == 0.1
    plain = GenerateRequest(id="p", task="chat", terminals=("audio",), sampling=Sampling(seed=5))
    spoken = params.talker_params(plain)
    assert spoken.sampling == Parameters(0.9, 50, 1.0, 1.05, 5) and spoken.max_frames == 4096
    assert params.thinker_params(plain, {}).max_tokens == 1024
    aliased = GenerateRequest(id="p", task="chat", terminals=("audio",), stage_params={"talker_ar": {"top_k": 7}})
    params.check_stage_params(aliased)
    assert params.talker_params(aliased).sampling.top_k == 7
    for name, value in (("temperature", "hot"), ("top_p", 1.5), ("top_k", 0.5), ("seed", True), ("max_tokens", 0.5)):
        with pytest.raises(Refused, match=name):
            params.talker_params(ask("text", talker={name: value}))
    with pytest.raises(Refused, match="stop_token_ids"):
        params.thinker_params(ask("text", thinker={"stop_token_ids": ["x"]}), {})
    with pytest.raises(Refused, match="chunk_frames must be an integer from 1 to 300"):
        params.chunking(ask("text", code2wav={"chunk_frames": 0}), 2, 10)


def test_voices() -> None:
    def asked(name: str) -> GenerateRequest:
        return GenerateRequest(id="v", task="chat", terminals=("audio",), voice=Voice(name))

    voices = ("ethan", "aiden")
    assert params.speaker(asked("default"), voices) == "ethan"
    assert params.speaker(asked("AIDEN"), voices) == "aiden"
    assert params.speaker(asked("nora"), ("Nora", "ethan")) == params.speaker(asked("Nora"), ("Nora", "ethan")) == "Nora"
    with pytest.raises(Refused, match="'Bob' is not one of ethan, aiden"):
        params.speaker(asked("Bob"), voices)


def test_each_row_draws_by_itself() -> None:
    """A row's draws are those it makes alone, whoever its neighbours are; greedy rows draw nothing."""
    torch.manual_seed(0)
    logits = [torch.randn(3, 50) for _ in range(6)]
    device = torch.device("cpu")
    sampled = Parameters(0.9, 20, 0.9, 1.1, seed=11)

    def alone() -> list[int]:
        sampler = Sampler(sampled, 50, device)
        return [choose(step[1:2], [sampler])[0] for step in logits]

    mixed = [Sampler(Parameters(1.0, seed=3), 50, device), Sampler(sampled, 50, device), Sampler(Parameters(), 50, device)]
    together = [choose(step, mixed) for step in logits]
    assert [row[1] for row in together] == alone() == alone()
    assert [row[2] for row in together] == [int(step[2].argmax()) for step in logits]
    assert len({tuple(alone()), tuple(row[0] for row in together)}) == 2


def test_suppressed_and_restricted_ids_are_never_drawn() -> None:
    sampler = Sampler(Parameters(2.0, top_k=3, seed=1), 10, torch.device("cpu"))
    suppressed = torch.zeros(10, dtype=torch.bool)
    suppressed[9] = True
    scores = torch.arange(10.0)[None]
    assert {choose(scores, [sampler], suppressed)[0] for _ in range(200)} == {6, 7, 8}
    narrow = Sampler(Parameters(1.0, top_p=1e-6, seed=1), 10, torch.device("cpu"))
    assert {choose(scores, [narrow])[0] for _ in range(20)} == {9}


def test_pages_are_promised_and_given_back() -> None:
    cache = PagedCache(4 * PAGE, Place.of("cpu"))
    one, two = cache.open(2 * PAGE), cache.open(PAGE + 1)
    assert cache.promised == 4 and not cache.can_hold(1)
    keys = torch.arange(2 * PAGE, dtype=torch.float32).view(2, 1, PAGE, 1)
    step = cache.begin([one, two], PAGE)
    step.update(keys, keys, 0)
    step.finish()
    step = cache.begin([one], 1)
    held, _ = step.update(torch.full((1, 1, 1, 1), -1.0), torch.zeros(1, 1, 1, 1), 0)
    step.finish()
    # Row one sees its own page and its new token, no more: the mask ends there.
    assert held[0, 0, : PAGE + 1, 0].tolist() == [*range(PAGE), -1]
    assert step.mask[0, 0, 0].tolist() == [True] * (PAGE + 1) + [False] * (PAGE - 1)
    cache.close(one)
    cache.close(one)
    assert cache.promised == 2 and cache.can_hold(2 * PAGE)
    with pytest.raises(RuntimeError, match="promised"):
        cache.begin([two], 2 * PAGE)


def test_what_one_row_leaves_in_a_page_does_not_reach_the_next() -> None:
    """Numbers that are none stay so when they are multiplied by zero, which is how a masked place is left out."""
    cache = PagedCache(PAGE, Place.of("cpu"))
    for value, width in ((torch.nan, PAGE), (1.0, 3)):
        row = cache.open(width)
        step = cache.begin([row], width)
        held, values = step.update(*[torch.full((1, 1, width, 1), value)] * 2, 0)
        step.finish()
        cache.close(row)
    assert held.flatten().tolist() == values.flatten().tolist() == [1.0] * 3 + [0.0] * (PAGE - 3)


def test_a_row_without_numbers_leaves_its_neighbour_its_answer() -> None:
    warm = [Sampler(Parameters(1.0, seed=n), 10, torch.device("cpu")) for n in (1, 1)]
    scores = torch.arange(10.0)
    (alone,) = choose(scores[None], warm[:1])
    assert (
        choose(
            torch.stack([torch.full((10,), torch.nan), scores]), [Sampler(Parameters(1.0), 10, torch.device("cpu")), warm[1]]
        )[1]
        == alone
    )


def test_a_device_gives_its_pages_at_once() -> None:
    """What was counted before loading is taken at the first forward, not when a conversation grows long."""
    cache = PagedCache(10 * PAGE, Place(torch.device("meta"), torch.float32))
    cache.begin([cache.open(PAGE)], 1)
    keys, values = cache.storage(0, torch.zeros(1, 2, 1, 4, device="meta"))
    assert keys.shape == values.shape == (10, PAGE, 2, 4)


def test_the_context_is_a_limit_by_name(folder: str, ask: Ask) -> None:
    small = Bench(folder, context=40, kv_tokens=64)
    made = small.run([ask("text", terminals=("text",))])["text"]
    assert made.finished is not None and made.finished.prompt_tokens + made.finished.completion_tokens <= 40
    with pytest.raises(Refused, match="context length is 40 tokens"):
        small.run([ask("audio", terminals=("text",))])
    # Two that do not fit together are served one after the other.
    both = small.run([ask("text", id="a", terminals=("text",)), ask("text", id="b", terminals=("text",))])
    assert both["a"].text == both["b"].text == made.text
