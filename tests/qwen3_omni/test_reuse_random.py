"""Random conversations over a cache that is too small for them: the same answers as of a Thinker that keeps nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from antiphon.pipelines.requests import GenerateRequest, Message, Part, Sampling, TextPart
from tests.qwen3_omni.cases import AUDIO, IMAGE, SYSTEM
from tests.qwen3_omni.driver import Bench

WORDS = ("Hello", "sound", "voice", "clear", "fox", "audio", "today", "ready", "system", "tone", "as soon as", "quick brown")
PAGES = 20


class Talks:
    """Four conversations that go on, are cut back, or begin anew."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.all = [[Message("system", (TextPart(SYSTEM * 3),))] for _ in range(4)]
        self.asked = 0

    def words(self) -> TextPart:
        return TextPart(" ".join(self.dice.choices(WORDS, k=self.dice.randint(2, 20))))

    def ask(self) -> Iterator[tuple[int, GenerateRequest]]:
        """One or two requests at once of some of them: an early answer, and the one that counts."""
        dice = self.dice
        for n in dice.sample(range(4), dice.randint(1, 3)):
            parts: list[Part] = [self.words()]
            if dice.random() < 0.3:
                parts.insert(dice.randint(0, 1), dice.choice([AUDIO, IMAGE]))
            self.all[n].append(Message("user", tuple(parts)))
            for _ in range(dice.choice([1, 1, 2])):
                self.asked += 1
                yield (
                    n,
                    GenerateRequest(
                        id=f"r{self.asked}",
                        task="chat",
                        terminals=dice.choice([("text",), ("text", "audio")]),
                        messages=tuple(self.all[n]),
                        conversation=f"c{n}",
                        sampling=Sampling(max_tokens=dice.randint(2, 10)),
                        stage_params={"talker": {"temperature": 0.0, "max_tokens": 4}},
                    ),
                )

    def heard(self, n: int, text: str) -> None:
        talk = self.all[n]
        talk.append(Message("assistant", (TextPart(text),)))
        if self.dice.random() < 0.2 and len(talk) > 3:
            del talk[self.dice.randint(1, len(talk) - 2) :]
        if len(talk) > 7:
            del talk[1:]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_conversations(seed: int, folder: str) -> None:
    talks = Talks(seed)
    kept = Bench(folder, talker={"kv_tokens": 32 * PAGES, "kept_rows": 3}, kv_tokens=32 * PAGES, kept_rows=5)
    plain = Bench(folder, kv_tokens=32 * PAGES)
    cached = 0
    for _ in range(6):
        asked = list(talks.ask())
        leaving = {r.id: talks.dice.randint(0, 3) for _, r in asked if "audio" in r.terminals and talks.dice.random() < 0.3}
        mine = kept.run([r for _, r in asked], abort=leaving)
        theirs = plain.run([r for _, r in asked])
        for _, r in asked:
            if not mine[r.id].aborted:
                assert (mine[r.id].tokens, mine[r.id].codes) == (theirs[r.id].tokens, theirs[r.id].codes)
                end = mine[r.id].finished
                cached += end.cached_tokens if end is not None else 0
        for n, text in {n: theirs[r.id].text for n, r in asked}.items():
            talks.heard(n, text)
        for stage in (kept.thinker, kept.talker):
            held = {page for prefix in stage.prefixes._kept.values() for page in prefix.row.pages}
            cache = stage.decoder.cache
            assert cache.promised == len(held), "nothing is promised but what is kept"
            assert sorted([*cache._free, *held]) == list(range(cache._made)), "every page is kept or free"
    assert cached > 100
