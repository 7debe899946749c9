"""The real voice says the same, sample for sample, wherever its stages run; and again after one of them was killed."""

from __future__ import annotations

import os
import signal
import time
from asyncio import sleep

import numpy as np
import pytest

from antiphon.pipelines import weights
from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import Busy, PipelineError, StageFailed, WeightError
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import GenerateRequest

pytestmark = pytest.mark.real

TEXT = "The answer to your question is forty two. It took a while to find out, and nobody liked it."


@pytest.fixture(autouse=True)
def voice() -> None:
    pytest.importorskip("hibari", reason="the extra `local` is not installed")
    try:
        weights.path("hibari-heart")
    except WeightError as error:
        pytest.skip(str(error))


def runtime(split: str) -> ProcessRuntime:
    cut = {"builder": "tests.processes.stages:voice", "args": {}, "split": split}
    return ProcessRuntime(PipelineSpec("antiphon.pipelines.splits:build", cut))


async def say(client: Client, name: str) -> bytes:
    request = GenerateRequest(id=name, task="speech", terminals=("audio",), text=TEXT)
    pieces = [e.data.pcm async for e in client.generate(request) if not e.last]
    assert len(pieces) > 3, "it streams"
    return bytes(np.concatenate(pieces).tobytes())


async def test_the_same_samples_in_every_split_and_after_a_death() -> None:
    said: dict[str, bytes] = {}
    for split in ("one", "apart"):
        async with Client(runtime(split)) as client:
            said[split] = await say(client, split)
            if split != "apart":
                continue
            for stage in ("code2wav",):
                request = GenerateRequest(id=f"killed-{stage}", task="speech", terminals=("audio",), text=TEXT)
                generation = client.generate(request)
                with pytest.raises(StageFailed) as failed:
                    async for event in generation:
                        place = client.health()["processes"][f"{stage}.0"].get("place")
                        if event.data is not None and place is not None:
                            os.kill(int(place.split()[1]), signal.SIGKILL)
                assert failed.value.retryable and failed.value.stage == stage
                said[f"after the death of {stage}"] = await _again(client, f"again-{stage}")
    assert len(said["one"]) > 4 * 24_000 * 2
    assert {name for name, pcm in said.items() if pcm != said["one"]} == set()


async def _again(client: Client, name: str) -> bytes:
    deadline = time.monotonic() + 60
    while True:
        try:
            return await say(client, name)
        except Busy as busy:
            assert "is not available" in str(busy) and time.monotonic() < deadline, busy
        except PipelineError as error:
            raise AssertionError(error) from error
        await sleep(0.05)
