"""The Thinkers on the real runtime: what the client hears, and that an abort reaches the engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import Aborted, StageFailed, WeightError
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.local import thinker_model
from antiphon.pipelines.outputs import TextDelta, TextResult, Usage
from antiphon.pipelines.runtime import LocalRuntime
from tests.mind import fake_openai as fake
from tests.mind.driver import body, limited
from tests.mind.fake_openai import FakeOpenAI


def pipeline(factory: str, **arguments: Any) -> PipelineConfig:
    thinker = StageConfig(
        name="thinker", factory=factory, factory_args=arguments, lane="mind", stream_to=("decode",),
        max_open=8, max_batch=8, credits=4096, prepares=True,
    )  # fmt: skip
    decode = StageConfig(
        name="decode", factory="antiphon.pipelines.local.decode:Decode", lane="text", terminal="text", credits=4096
    )
    return PipelineConfig("mind", "thinker", [thinker, decode])


def chat(said: str, **more: Any) -> Any:
    return body(said, terminals=("text",), **more)


async def heard(generation: Any) -> tuple[str, Any]:
    text, result = "", None
    async for event in generation:
        if event.last:
            result = event.data
        elif isinstance(event.data, TextDelta):
            text += event.data.text
    return text, result


async def test_a_remote_answer_reaches_the_client_and_an_abort_hangs_up() -> None:
    async with FakeOpenAI([fake.good, fake.hang_after_two, fake.drop_after_one]) as server:
        config = pipeline("antiphon.pipelines.engines.openai.thinker:OpenAIThinker", url=server.url, model="m")
        async with Client(LocalRuntime(config)) as client:
            assert await heard(client.generate(chat("Hi", id="1"))) == ("Hello.", TextResult("stop", Usage(7, 3, 2)))
            hanging = client.generate(chat("Hi", id="2"))
            with pytest.raises(Aborted):
                async for event in hanging:
                    assert event.data == TextDelta("Hel")
                    hanging.abort()
            await asyncio.wait_for(hanging.released(), 5)
            await asyncio.wait_for(server.hung_up.wait(), 5)
            with pytest.raises(StageFailed):
                await heard(client.generate(chat("Hi", id="3")))


@pytest.mark.real
async def test_local_answers_share_the_lane_and_an_aborted_one_leaves() -> None:
    pytest.importorskip("cyllama", reason="needs the extra 'local'")
    try:
        model = str(thinker_model.installed(thinker_model.SMALL))
    except WeightError as error:
        pytest.skip(str(error))
    config = pipeline("antiphon.pipelines.local.thinker:Thinker", model=model, context=512, cells=2048, max_conversations=8)
    async with Client(LocalRuntime(config)) as client:
        endless = client.generate(chat("Tell me a very long story.", id="e", sampling=limited(300)))
        asked = [client.generate(chat(q, id=q, conversation=q, sampling=limited(6))) for q in ("Hi!", "Who are you?")]
        answers = await asyncio.gather(*(heard(g) for g in asked))
        assert all(text and isinstance(result, TextResult) for text, result in answers)
        assert not endless.ended
        endless.abort()
        await asyncio.wait_for(endless.released(), 20)
        with pytest.raises(Aborted):
            await heard(endless)
        client.forget("Hi!")
        text, _ = await heard(client.generate(chat("Hi!", id="again", sampling=limited(6))))
        assert text == answers[0][0]
