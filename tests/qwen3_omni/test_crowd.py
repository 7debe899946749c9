"""Many prompts at once: a step holds a slice of one, and a token of every answer that is being spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.thinker import Thinker
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_equal import TOLERANCE
from tests.qwen3_omni.test_graph import read

Ask = Callable[..., GenerateRequest]
Expected = Callable[[str], Answer]
SLICE = 8


async def test_newcomers_do_not_hold_up_who_speaks(
    folder: str, ask: Ask, expected: Expected, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, batches = Thinker.step, []

    def noted(self: Thinker, batch: Sequence[Any], emit: Any) -> None:
        batches.append([min(SLICE, t.length - t.prefilled) if t.in_prefill else 0 for t in batch])
        step(self, batch, emit)

    monkeypatch.setattr(Thinker, "step", noted)
    config = build(folder, stage_args={"thinker": {"prefill_slice": SLICE}, "talker_ar": {"prefill_slice": SLICE}})
    assert config.stages["thinker"].step_budget == config.stages["talker_ar"].step_budget == SLICE + 16
    assert build(folder).stages["thinker"].step_budget == 512 + 16
    async with Client(LocalRuntime(config)) as client:
        first = client.generate(ask("text", id="first"))
        reading = asyncio.ensure_future(read(first))
        while not any(0 in batch for batch in batches):  # noqa: ASYNC110 - it speaks; the lane has no event for this loop
            await asyncio.sleep(0.001)
        crowd = [asyncio.ensure_future(read(client.generate(ask("audio and image", id=f"{n}")))) for n in range(6)]
        answers = [("text", await reading)] + [("audio and image", got) for got in await asyncio.gather(*crowd)]
        for name, got in answers:
            assert got.text == oracle.tok.decode(expected(name).tokens, skip_special_tokens=True)
            assert np.abs(np.concatenate(got.pieces) - expected(name).wave).max() < TOLERANCE
        await first.released()
    assert max(sum(batch) for batch in batches) <= SLICE + 16
    assert any(sum(batch) >= SLICE and batch.count(0) >= 2 for batch in batches), "nobody spoke beside a prompt"
