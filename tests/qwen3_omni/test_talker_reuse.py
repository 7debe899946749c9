"""The user's earlier turns are not computed again for the talker: the same codes, from fewer rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.pipelines.engines.torch.paged import PAGE, PagedCache
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.requests import GenerateRequest, Message, Part, Sampling, TextPart
from tests.qwen3_omni.cases import AUDIO, IMAGE
from tests.qwen3_omni.driver import Bench, Made

QUESTION = TextPart(
    "What can you hear in this audio? The quick brown fox jumps over the lazy dog. And what is this? Is it clear?"
)
OPENING = 9
"""Rows that open each answer, of the published algorithm."""


class Counting:
    """A bench whose talker says how many rows it computed before its first frame."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows = 0
        decoder, inner = bench.talker.decoder, bench.talker.decoder.forward

        def counted(rows: Any, x: Any, *args: Any, **named: Any) -> Any:
            self.rows += x.shape[1] if x.shape[1] > 1 else 0
            return inner(rows, x, *args, **named)

        decoder.forward = counted  # type: ignore[method-assign]

    def ask(self, *turns: tuple[Part, ...], system: str = "Be brief.", conversation: str = "one") -> tuple[Made, int]:
        """``turns`` of the user, each answered "I see."; the last one is asked."""
        messages = [Message("system", (TextPart(system),))]
        for turn in turns:
            messages += [Message("user", turn), Message("assistant", (TextPart("I see."),))]
        body = GenerateRequest(
            id="x",
            task="chat",
            terminals=("text", "audio"),
            messages=tuple(messages[:-1]),
            conversation=conversation,
            sampling=Sampling(max_tokens=6),
            stage_params={"talker": {"temperature": 0.0, "max_tokens": 6}},
        )
        self.rows = 0
        return self.bench.run([body])["x"], self.rows


@pytest.fixture(scope="module")
def benches(folder: str) -> tuple[Bench, Bench]:
    """One whose talker keeps, and one that keeps nothing."""
    return Bench(folder, talker={"kept_rows": 8}), Bench(folder)


@pytest.fixture
def kept(benches: tuple[Bench, Bench]) -> Iterator[Counting]:
    bench = benches[0]
    yield Counting(bench)
    del bench.talker.decoder.forward
    for conversation in list(bench.talker.prefixes._kept):
        bench.talker.forget(conversation)
    assert bench.talker.decoder.cache.promised == 0


@pytest.fixture
def plain(benches: tuple[Bench, Bench]) -> Iterator[Counting]:
    yield Counting(benches[1])
    del benches[1].talker.decoder.forward


def same(one: Made, other: Made) -> None:
    assert one.codes == other.codes and len(one.codes) > 1 and one.tokens == other.tokens


def test_a_turn_computes_its_own_rows_and_a_broken_page(kept: Counting, plain: Counting) -> None:
    turns: list[tuple[Part, ...]] = []
    before = 0
    for turn in ((QUESTION,), (AUDIO, QUESTION), (IMAGE, TextPart("Hello?")), (TextPart("And the voice?"),)):
        turns.append(turn)
        (mine, few), (theirs, all_rows) = kept.ask(*turns), plain.ask(*turns)
        same(mine, theirs)
        assert few == all_rows - (before // PAGE * PAGE)
        before = all_rows - OPENING


def test_another_context_of_the_same_sound_is_another(kept: Counting, plain: Counting, folder: str) -> None:
    """What the thinker has heard in a sound depends on what stood before it, which the talker is not shown."""
    kept.ask((QUESTION, AUDIO))
    mine, few = kept.ask((QUESTION, AUDIO), (QUESTION,), system="Say what you hear, in French, and nothing else at all.")
    theirs, all_rows = plain.ask(
        (QUESTION, AUDIO), (QUESTION,), system="Say what you hear, in French, and nothing else at all."
    )
    same(mine, theirs)
    text = len(read_tokenizer(folder)(QUESTION.text)["input_ids"])
    assert 0 < all_rows - few <= text + 4, "the words before the sound, and no row of it"


def test_other_words_and_another_conversation(kept: Counting, plain: Counting) -> None:
    """The same beginning serves anybody; other words are computed; a conversation that is over is forgotten."""
    _, whole = kept.ask((QUESTION,))
    mine, few = kept.ask((QUESTION,), (AUDIO,), conversation="two")
    same(mine, plain.ask((QUESTION,), (AUDIO,))[0])
    assert few < plain.rows
    other = TextPart("Hello! " + QUESTION.text)
    mine, few = kept.ask((other,), conversation="three")
    same(mine, plain.ask((other,))[0])
    assert few == plain.rows
    for conversation in ("one", "two", "three"):
        kept.bench.talker.forget(conversation)
    assert kept.ask((QUESTION,))[1] == whole


def test_a_row_that_is_cut_keeps_whole_pages() -> None:
    cache = PagedCache(8 * PAGE, Place.of("cpu"))
    row = cache.open(6 * PAGE)
    cache.begin([row], 3 * PAGE + 5).finish()
    assert cache.promised == 6
    cache.cut(row, 2 * PAGE + 31)
    assert (row.length, len(row.pages), cache.promised) == (2 * PAGE, 2, 2)
    cache.cut(row, 5 * PAGE)
    assert row.length == 2 * PAGE, "it cannot grow by being cut"
    cache.close(row)
    assert cache.promised == 0 and cache.can_hold(8 * PAGE)
