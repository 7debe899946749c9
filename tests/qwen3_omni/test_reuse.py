"""What a conversation's last turn left in the cache: its next turn is computed from where it differs, to the same answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from antiphon.pipelines.client import Client
from antiphon.pipelines.engines.torch.paged import PAGE, PagedCache
from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.engines.torch.prefixes import Prefix, Prefixes
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest, ImagePart, Message, Part, Sampling, TextPart
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni.cases import AUDIO, HELLO, IMAGE, SYSTEM, picture, png, tone
from tests.qwen3_omni.oracle import Oracle
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import Got, read

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKENS, FRAMES = 8, 5


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(folder: str) -> AsyncIterator[Client]:
    async with Client(LocalRuntime(build(folder))) as client:
        yield client


def text(words: str) -> tuple[Part, ...]:
    return (TextPart(words),)


class Conversation:
    """Turns as our request and as the oracle's inputs."""

    def __init__(self, client: Client, oracle: Oracle, name: str) -> None:
        self.client, self.oracle, self.name = client, oracle, name
        self.messages: list[Message] = [Message("system", text(SYSTEM))]
        self.turns: list[dict[str, Any]] = [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]}]
        self.items: dict[str, list[Any]] = {}
        self.count = 0

    def user(self, *parts: Part, **items: Any) -> None:
        kinds = [{"type": "text", "text": p.text} if isinstance(p, TextPart) else {"type": _kind(p)} for p in parts]
        self.messages.append(Message("user", parts))
        self.turns.append({"role": "user", "content": kinds})
        for kind, item in items.items():
            self.items.setdefault(kind, []).append(item)

    def assistant(self, words: str) -> None:
        self.messages.append(Message("assistant", text(words)))
        self.turns.append({"role": "assistant", "content": [{"type": "text", "text": words}]})

    def request(self, **changes: Any) -> GenerateRequest:
        self.count += 1
        asked: dict[str, Any] = {
            "terminals": ("text", "audio"),
            "messages": tuple(self.messages),
            "conversation": self.name,
            "sampling": Sampling(max_tokens=TOKENS),
            "stage_params": {"talker": {"temperature": 0.0, "max_tokens": FRAMES}},
        }
        return GenerateRequest(id=f"{self.name or id(self)}-{self.count}", task="chat", **{**asked, **changes})

    async def turn(self, **changes: Any) -> tuple[Got, int]:
        """Ask, and hold the answer against generate() on the whole conversation; how much of the prompt was cached."""
        generation = self.client.generate(self.request(**changes))
        got = await read(generation)
        await generation.released()
        inputs = self.oracle.media(self.turns, **self.items) if self.items else self.oracle.text(_flat(self.turns))
        answer = self.oracle.answer(inputs, tokens=TOKENS, frames=FRAMES)
        assert answer.gap > 1e-5
        assert got.text == self.oracle.tok.decode(answer.tokens, skip_special_tokens=True)
        if got.pieces:
            wave = np.concatenate(got.pieces)
            assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
        usage = got.ends["text"].data.usage
        assert usage.prompt_tokens == inputs["input_ids"].shape[1]
        return got, usage.cached_tokens


def _kind(part: Part) -> str:
    return "image" if isinstance(part, ImagePart) else "audio"


def _flat(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": t["role"], "content": "".join(c["text"] for c in t["content"])} for t in turns]


async def test_each_turn_begins_where_it_differs(client: Client, oracle: Oracle) -> None:
    talk = Conversation(client, oracle, "text")
    talk.user(*text(HELLO))
    first, cached = await talk.turn()
    assert cached == 0
    before = first.ends["text"].data.usage.prompt_tokens
    for question in ("What sound?", "Who are you? What can you hear in this audio?", "And the voice?"):
        talk.assistant(first.text)
        talk.user(*text(question))
        first, cached = await talk.turn()
        # All of the last prompt but its broken page, and perhaps some of the answer.
        assert cached >= before // PAGE * PAGE and cached % PAGE == 0
        before = first.ends["text"].data.usage.prompt_tokens


async def test_media_of_earlier_turns_are_heard_and_seen_again(client: Client, oracle: Oracle) -> None:
    """The talker wants inner states at media places, also at those that the thinker did not compute again."""
    talk = Conversation(client, oracle, "media")
    talk.user(AUDIO, TextPart("What can you hear in this audio? The quick brown fox jumps over the lazy dog."), audio=tone())
    first, _ = await talk.turn()
    talk.assistant(first.text)
    talk.user(IMAGE, TextPart("And what is this? Is it clear?"), images=picture())
    second, cached = await talk.turn()
    assert cached >= 2 * PAGE  # system, the sound and a part of the question
    talk.assistant(second.text)
    talk.user(*text("Hello?"))
    _, later = await talk.turn()
    assert later > cached


async def test_other_media_at_the_same_places_are_not_taken_for_them(client: Client, oracle: Oracle) -> None:
    """Equal ids, another picture: only what stands before it is the same."""
    other = picture().transpose(0)
    lead = TextPart("The quick brown fox jumps over the lazy dog. 0123456789 stream audio frames as soon as they are ready")
    for name, image in (("one", picture()), ("two", other)):
        talk = Conversation(client, oracle, name)
        talk.user(lead, ImagePart(png(image)), TextPart("What can you hear in this audio, then a voice?"), images=image)
        _, cached = await talk.turn()
    ids = oracle.media(talk.turns, **talk.items)["input_ids"][0].tolist()
    assert 0 < cached <= ids.index(oracle.model.config.thinker_config.image_token_id)


async def test_what_was_never_spoken_has_no_states(client: Client, oracle: Oracle) -> None:
    """A written turn collects none for the talker; a spoken one after it computes the media again."""
    talk = Conversation(client, oracle, "written")
    talk.user(TextPart("Hello, how are you today? I can hear a short tone."), AUDIO, TextPart("What?"), audio=tone())
    first, _ = await talk.turn(terminals=("text",))
    talk.assistant(first.text)
    talk.user(*text("And now aloud."))
    _, cached = await talk.turn()
    ids = oracle.media(talk.turns, **talk.items)["input_ids"][0].tolist()
    assert cached <= ids.index(oracle.model.config.thinker_config.audio_token_id)


async def test_a_prompt_read_ahead_is_there_when_it_is_asked(client: Client, oracle: Oracle) -> None:
    talk = Conversation(client, oracle, "ahead")
    talk.user(AUDIO, TextPart("What can you hear?"), audio=tone())
    talk.assistant("I can hear a short tone, then a voice that says hello. The sound is clear.")
    generation = client.generate(talk.request(kind="prepare", terminals=(), listener="none"))
    assert not [e async for e in generation if not e.last]
    await generation.released()
    talk.user(*text("Hello?"))
    _, cached = await talk.turn()
    assert cached >= 2 * PAGE


async def test_two_turns_at_once_and_one_withdrawn(client: Client, oracle: Oracle) -> None:
    """An early answer is given up half way, while another of the same conversation runs on the same pages."""
    talk = Conversation(client, oracle, "twice")
    talk.user(*text(HELLO))
    first, _ = await talk.turn()
    talk.assistant(first.text)
    talk.user(*text("What sound?"))
    early = client.generate(talk.request(listener="early", sampling=Sampling(max_tokens=400)))
    async for _ in early:
        early.abort()
        break
    _, cached = await talk.turn()
    assert cached >= PAGE
    await early.released()


async def test_a_forgotten_conversation_leaves_nothing(folder: str, oracle: Oracle) -> None:
    async with Client(LocalRuntime(build(folder))) as client:
        talk = Conversation(client, oracle, "gone")
        talk.user(*text(HELLO))
        await talk.turn()
        client.forget("gone")
        _, cached = await talk.turn()
        assert cached == 0
    async with Client(LocalRuntime(build(folder, stage_args={"thinker": {"kept_rows": 0}}))) as client:
        talk = Conversation(client, oracle, "none")
        talk.user(*text(HELLO))
        await talk.turn()
        _, cached = await talk.turn()
        assert cached == 0, "nothing is kept where nothing may be"


async def test_a_client_that_keeps_its_own_history(client: Client, oracle: Oracle) -> None:
    """No conversation is named, as over REST: the same messages again, and one more."""
    talk = Conversation(client, oracle, "")
    talk.user(*text("I can hear the voice that says hello. What can you hear? The sound is clear."))
    first, _ = await talk.turn()
    talk.assistant(first.text)
    talk.user(*text("Who are you?"))
    _, cached = await talk.turn()
    assert cached >= first.ends["text"].data.usage.prompt_tokens // PAGE * PAGE


# -- the books


def prefix(cache: PagedCache, pages: int, seed: int) -> Prefix:
    row = cache.open(pages * PAGE)
    step = cache.begin([row], pages * PAGE)
    step.finish()
    n = pages * PAGE
    names = np.arange(n) + 1000 * seed
    return Prefix(row, names, np.zeros((3, n), np.float32), np.zeros(n, bool))


async def test_kept_rows_give_way_and_shared_pages_stay() -> None:
    cache = PagedCache(8 * PAGE, Place.of("cpu"))
    kept = Prefixes(cache)
    old, new = prefix(cache, 3, 1), prefix(cache, 3, 2)
    kept.keep("old", old, whole=True)
    kept.keep("new", new, whole=True)
    assert cache.promised == 6 and not cache.can_hold(3 * PAGE) and kept.could_hold(8 * PAGE) and not kept.could_hold(9 * PAGE)
    names = np.concatenate([new.names, np.arange(PAGE)])
    opened = kept.open(5 * PAGE, names, np.zeros((3, len(names)), np.float32), states=False)
    assert opened is not None
    row, source = opened
    assert source is new and row.length == 3 * PAGE and row.pages == new.row.pages
    assert len(kept) == 2 and cache.promised == 8, "two pages more: nothing had to go"
    assert kept.open(PAGE, np.arange(3), np.zeros((3, 3), np.float32), states=False) is not None
    assert len(kept) == 1, "the one used longest ago went"
    kept.forget("new")
    assert not any(page in cache._free for page in row.pages), "the row still holds what it began with"
    cache.close(row)
    assert cache.promised == 1


async def test_a_cache_that_could_not_grow_once_grows_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is short for the values of a layer, whose keys have grown already."""
    cache = PagedCache(8 * PAGE, Place.of("cpu"))
    row = cache.open(PAGE)
    ours = torch.arange(float(2 * PAGE * 3)).reshape(1, 2, PAGE, 3)
    cat, calls = torch.cat, []

    def short(parts: list[torch.Tensor]) -> torch.Tensor:
        calls.append(parts)
        if len(calls) == 2:
            raise RuntimeError("can't allocate memory")
        return cat(parts)

    monkeypatch.setattr(torch, "cat", short)
    with pytest.raises(RuntimeError, match="memory"):
        cache.begin([row], PAGE).update(ours, -ours, 0)
    cache.close(row)
    row = cache.open(PAGE)
    keys, values = cache.begin([row], PAGE).update(ours, -ours, 0)
    assert torch.equal(keys, ours) and torch.equal(values, -ours)


async def test_a_short_row_does_not_replace_a_long_one() -> None:
    cache = PagedCache(8 * PAGE, Place.of("cpu"))
    kept = Prefixes(cache, rows=1)
    long, short = prefix(cache, 3, 1), prefix(cache, 1, 1)
    kept.keep("c", long, whole=True)
    kept.keep("c", short, whole=False)
    assert cache.promised == 3
    kept.keep("c", prefix(cache, 2, 1), whole=True)
    assert cache.promised == 2
    kept.keep("d", prefix(cache, 1, 1), whole=True)
    assert len(kept) == 1 and cache.promised == 1


async def test_positions_and_states_bound_what_is_common() -> None:
    n = 4 * PAGE
    names, at = np.arange(n), np.zeros((3, n), np.float32)
    media = np.zeros(n, bool)
    media[2 * PAGE + 5] = True
    cache = PagedCache(n, Place.of("cpu"))
    known = Prefix(cache.open(n), names, at, media, torch.zeros(1, 4))
    unknown = Prefix(cache.open(0), names, at, media)
    assert known.common(names, at, states=True) == n == unknown.common(names, at, states=False)
    assert unknown.common(names, at, states=True) == 2 * PAGE
    moved = at.copy()
    moved[1, PAGE + 3] = 1
    assert known.common(names, moved, states=True) == PAGE
