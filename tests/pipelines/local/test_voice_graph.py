"""The speaking stages on the real runtime: equal under load, held by the listener's window, aborted at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import Refused, WeightError
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.requests import GenerateRequest, Voice
from antiphon.pipelines.runtime import LocalRuntime

pytestmark = pytest.mark.real
HERE = "antiphon.pipelines.local"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    pytest.importorskip("hibari", reason="the extra `local` is not installed")
    try:
        weights.path("hibari-heart")
    except WeightError as e:
        pytest.skip(str(e))
    segmenter = StageConfig(name="segmenter", factory=f"{HERE}.segmenter:Segmenter", stream_to=("talker",), credits=4)
    talker = StageConfig(
        name="talker",
        factory=f"{HERE}.talker:Talker",
        stream_to=("code2wav",),
        start_on={"segmenter": 1},
        credits=2,
        max_batch=1,
    )
    code2wav = StageConfig(
        name="code2wav", factory=f"{HERE}.code2wav:Code2Wav", start_on={"talker": 1}, terminal="audio", max_batch=4
    )
    async with Client(LocalRuntime(PipelineConfig("speaking", "segmenter", [segmenter, talker, code2wav]))) as running:
        yield running


def asked(name: str, text: str, **more: Any) -> GenerateRequest:
    return GenerateRequest(id=name, task="speech", terminals=("audio",), text=text, **more)


async def heard(client: Client, request: GenerateRequest) -> tuple[NDArray[np.float32], Any]:
    pieces, end = [np.zeros(0, np.float32)], None
    async for event in client.generate(request):
        if event.last:
            end = event
        else:
            pieces.append(event.data.pcm)
    return np.concatenate(pieces), end


async def test_at_once_equals_alone(client: Client) -> None:
    texts = ["One sentence. And another.", "Something else, with a comma in it.", "A third?", "And 4, as well."]
    alone = [await heard(client, asked(f"alone{n}", text, listener="none")) for n, text in enumerate(texts)]
    together = await asyncio.gather(
        *(heard(client, asked(f"at once{n}", text, listener="none")) for n, text in enumerate(texts))
    )
    for (one, end), (other, _) in zip(alone, together, strict=True):
        assert np.array_equal(one, other)
        assert end.data.samples == len(one) > 0


async def test_megabyte_is_not_spoken_ahead_of_its_listener(client: Client) -> None:
    generation = client.generate(asked("long", "The quick brown fox jumps over the lazy dog. " * 22_000))
    generation.tell(due_in_ms=0, heard_ms=0, window_ms=2000, listener="confirmed")
    events, samples = aiter(generation), 0
    while samples < 2.0 * 24_000:
        samples += len((await anext(events)).data.pcm)
    try:
        while True:  # what comes now was on its way
            event = await asyncio.wait_for(anext(events), 0.4)
            samples += len(event.data.pcm)
    except TimeoutError:
        pass
    assert samples <= (2.0 + 0.2 + 3.0) * 24_000, "the window, a block, a clause"
    generation.abort()
    await generation.released()


async def test_nothing_to_say_ends_empty(client: Client) -> None:
    for text in ("😀", "...", "🎉 !!", " "):
        pcm, end = await heard(client, asked("quiet", text, listener="none"))
        assert len(pcm) == 0 and end.skipped


async def test_what_cannot_be_spoken_is_refused_by_name(client: Client) -> None:
    with pytest.raises(Refused, match="cannot speak 'fr'"):
        await heard(client, asked("french", "Bonjour", voice=Voice(language="fr")))
    with pytest.raises(Refused, match="Cyrillic"):
        await heard(client, asked("russian", "Привет"))
    assert len((await heard(client, asked("after", "Hello.", listener="none")))[0])
