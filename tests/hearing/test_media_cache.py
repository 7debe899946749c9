"""One run however many ask; whoever computes may vanish; nothing grows."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.pipelines.media_cache import Known, MediaCache, Turn


def test_the_first_computes_and_the_others_wait() -> None:
    cache: MediaCache[str] = MediaCache(4)
    assert cache.ask("clip", 1) is Turn.COMPUTE
    assert cache.ask("clip", 2) is Turn.WAIT
    cache.put("clip", 1, "hello")
    assert cache.peek("clip", 2) == Known("hello")
    cache.leave("clip", 2)
    assert cache.ask("clip", 3) == Known("hello")
    assert cache.in_flight == 0
    assert (cache.counts.misses, cache.counts.shared, cache.counts.hits) == (1, 1, 1)


def test_the_longest_waiting_takes_over_from_one_that_is_aborted() -> None:
    cache: MediaCache[str] = MediaCache(4)
    for who in (1, 2, 3):
        cache.ask("clip", who)
    cache.leave("clip", 1)
    assert cache.peek("clip", 2) is Turn.COMPUTE
    assert cache.peek("clip", 3) is Turn.WAIT


def test_a_failure_is_not_kept() -> None:
    cache: MediaCache[str] = MediaCache(4)
    cache.ask("clip", 1)
    cache.leave("clip", 1)
    assert len(cache) == 0
    assert cache.ask("clip", 2) is Turn.COMPUTE


def test_one_who_waits_finds_what_was_evicted_meanwhile() -> None:
    cache: MediaCache[str] = MediaCache(1)
    cache.ask("a", 1)
    cache.ask("a", 2)
    cache.put("a", 1, "A")
    cache.ask("b", 1)
    cache.put("b", 1, "B")
    assert len(cache) == 1
    assert cache.peek("a", 2) == Known("A")
    cache.leave("a", 2)
    assert cache.ask("a", 3) is Turn.COMPUTE


def test_only_the_one_who_computes_may_put() -> None:
    cache: MediaCache[str] = MediaCache(1)
    cache.ask("a", 1)
    cache.ask("a", 2)
    with pytest.raises(KeyError):
        cache.put("a", 2, "A")
    with pytest.raises(KeyError):
        cache.put("b", 1, "B")
    with pytest.raises(ValueError):
        MediaCache(0)


class Crowd(RuleBasedStateMachine):
    """Any interleaving of askers over few keys. The model: who asked and has not left, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: MediaCache[str] = MediaCache(2)
        self.asking: dict[str, list[int]] = {}
        self.landed: dict[str, list[int]] = {}

    keys = st.sampled_from("abc")
    people = st.integers(0, 4)

    @rule(key=keys, who=people)
    def ask(self, key: str, who: int) -> None:
        waiting, fetching = self.asking.get(key, []), self.landed.get(key, [])
        got = self.cache.ask(key, who)
        if isinstance(got, Known):
            assert got.value == key.upper()
            return
        assert who not in fetching and not fetching, "what has landed is there for everybody"
        if who not in waiting:
            self.asking.setdefault(key, []).append(who)
        assert got is (Turn.COMPUTE if self.asking[key][0] == who else Turn.WAIT)

    @rule(key=keys)
    def land(self, key: str) -> None:
        if self.asking.get(key):
            who, *rest = self.asking.pop(key)
            self.cache.put(key, who, key.upper())
            self.landed[key] = rest
            assert self.cache.ask(key, 99) == Known(key.upper())

    @rule(key=keys, who=people)
    def leave(self, key: str, who: int) -> None:
        self.cache.leave(key, who)
        for place in (self.asking, self.landed):
            if who in place.get(key, []):
                place[key].remove(who)

    @invariant()
    def exactly_one_computes(self) -> None:
        for key, people in self.asking.items():
            for i, who in enumerate(people):
                assert self.cache.peek(key, who) is (Turn.WAIT if i else Turn.COMPUTE)
        for key, people in self.landed.items():
            for who in people:
                assert self.cache.peek(key, who) == Known(key.upper())

    @invariant()
    def bounded(self) -> None:
        assert len(self.cache) <= 2
        assert self.cache.in_flight == sum(bool(self.asking.get(k) or self.landed.get(k)) for k in "abc")


Crowd.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCrowd = Crowd.TestCase
