"""Everything off the CPU, on a GPU that is pretended: no operation mixes devices, and the answers are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest, ResponseFormat, Sampling, TextPart
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni.cases import AUDIO, HELLO, IMAGE, picture, tone
from tests.qwen3_omni.driver import Bench
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.pretend_gpu import READINGS, MixedDevices, OnGpu, pretend_gpus
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import read
from tests.qwen3_omni.test_reuse import Conversation

if torch.version.cuda is not None:
    pytest.skip("this torch has a CUDA of its own, which is not replaced", allow_module_level=True)

in_the_loop = pytest.mark.asyncio(loop_scope="module")
Ask = Callable[..., GenerateRequest]
Expected = Callable[[str], Answer]
TOKENS, FRAMES = 8, 3
"""Every operation goes through Python: answers are kept short, and held against the beginning of the reference's."""
SHORT: dict[str, Any] = {"sampling": Sampling(max_tokens=TOKENS), "talker": {"max_tokens": FRAMES + 1}}


def same_beginning(wave: np.ndarray, answer: Answer) -> None:
    assert len(wave) == 1920 * FRAMES - 555 and np.abs(wave - answer.wave[: len(wave)]).max() < TOLERANCE


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(folder: str) -> AsyncIterator[Client]:
    """Encoders and thinker on one GPU, talker and code2wav on another, as the preset ``two_gpus`` has it, in one process."""
    first, second = ({"device": f"cuda:{n}", "dtype": "float32"} for n in range(2))
    places = {"audio_encoder": first, "image_encoder": first, "thinker": first, "talker_ar": second, "code2wav": second}
    with pretend_gpus(2, here=False):
        async with Client(LocalRuntime(build(folder, stage_args=places))) as client:
            yield client


def test_devices_that_are_mixed_are_found() -> None:
    with pretend_gpus(2):
        mixing_is_found()


def mixing_is_found() -> None:
    there, here = torch.ones(3, device="cuda:0"), torch.ones(3)
    assert isinstance(there, OnGpu) and there.device == torch.device("cuda:0")
    for mix in (lambda: there + here, lambda: torch.cat([there, here]), lambda: there.masked_fill(here > 0, 0.0)):
        with pytest.raises(MixedDevices):
            mix()
    with pytest.raises(MixedDevices):
        there + here.to("cuda:1")
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    held = here.to("cuda:0")
    held[1:] = 5.0
    assert held.tolist() == [1.0, 5.0, 5.0] and here.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_stages_on_a_device(dtype: str, folder: str, ask: Ask, expected: Expected) -> None:
    names = ("turns", "sampled", "audio and image", "video with sound")
    made = {}
    with pretend_gpus(2):
        bench = Bench(folder, place={"device": "cuda:1", "dtype": dtype})
        for stage in (bench.thinker, bench.talker, bench.code2wav):
            stage.warm_up()
        assert all(p.device == torch.device("cuda:1") for p in bench.talker.talker.parameters())
        for name in names:
            made |= bench.run([ask(name, **SHORT)])
    for name in names:
        assert len(made[name].codes) == FRAMES
        if dtype == "float32":
            assert made[name].tokens == expected(name).tokens[: TOKENS - 1]
            assert made[name].codes == expected(name).codes[:FRAMES]
            same_beginning(made[name].wave, expected(name))


def test_a_step_reads_from_the_device_what_it_says(folder: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thinker its tokens, the talker first codes and residual codes, code2wav the samples."""
    readings: dict[str, set[int]] = {}
    with pretend_gpus():
        bench = Bench(folder, place={"device": "cuda:0"})
        for name in ("thinker", "talker", "code2wav"):
            monkeypatch.setattr(
                getattr(bench, name), "step", counted(getattr(bench, name).step, readings.setdefault(name, set()))
            )
        bench.run([ask("sampled", **SHORT)])
    assert readings == {"thinker": {1}, "talker": {1, 2}, "code2wav": {1}}, "the talker's last step makes no frame"


def counted(step: Callable[..., None], readings: set[int]) -> Callable[..., None]:
    def run(batch: Any, emit: Any) -> None:
        before = READINGS[0]
        step(batch, emit)
        readings.add(READINGS[0] - before)

    return run


@in_the_loop
async def test_on_two_devices(client: Client, ask: Ask, expected: Expected, oracle: Oracle) -> None:
    for name in ("sampled", "video with sound"):
        generation = client.generate(ask(name, **SHORT))
        got, answer = await read(generation), expected(name)
        assert got.text == oracle.tok.decode(answer.tokens[:TOKENS], skip_special_tokens=True)
        same_beginning(np.concatenate(got.pieces), answer)
        await generation.released()


@in_the_loop
async def test_a_conversation_s_cache_and_its_media(client: Client, oracle: Oracle) -> None:
    talk = Conversation(client, oracle, "on a device")
    talk.user(IMAGE, TextPart(f"{HELLO} What is this?"), images=picture())
    got, _ = await talk.turn()
    talk.assistant(got.text)
    talk.user(AUDIO, TextPart("And this?"), audio=tone())
    got, cached = await talk.turn()
    assert cached
    talk.assistant(got.text)
    talk.user(TextPart("Once more."))
    _, again = await talk.turn()
    assert again > cached


@in_the_loop
async def test_sampled_and_by_a_schema(client: Client, ask: Ask) -> None:
    drawn = Sampling(temperature=0.9, top_k=20, top_p=0.9, repetition_penalty=1.2, seed=5, max_tokens=12)
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    texts = [(await read(client.generate(ask("text", id=f"s{n}", terminals=("text",), sampling=drawn)))).text for n in range(2)]
    assert texts[0] == texts[1]
    kept = ask("text", id="kept", terminals=("text",), sampling=drawn, response_format=ResponseFormat("json_schema", schema))
    assert isinstance(json.loads((await read(client.generate(kept))).text)["a"], bool)


@in_the_loop
async def test_an_abort_is_released_by_the_device(client: Client, ask: Ask) -> None:
    generation = client.generate(ask("text", id="left"))
    async for _ in generation:
        generation.abort()
        break
    await asyncio.wait_for(generation.released(), 10)
