"""Chunks of sound and the listener's window: the talker makes no more ahead than that, whatever chunk was asked for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.outputs import AudioDelta
from antiphon.pipelines.qwen3_omni.payloads import Frame
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Chunk, Progress, Ready, Request
from tests.qwen3_omni.driver import Bench
from tests.qwen3_omni.oracle import Answer
from tests.qwen3_omni.test_equal import TOLERANCE


@pytest.mark.asyncio
async def test_a_window_shorter_than_a_chunk(
    folder: str, ask: Callable[..., GenerateRequest], expected: Callable[[str], Answer]
) -> None:
    """A window of 400 ms holds five frames; a chunk of ten was waited for by both sides, for ever."""
    async with Client(LocalRuntime(build(folder))) as client:
        generation = client.generate(ask("text", code2wav={"first_chunk_frames": 2, "chunk_frames": 10}))
        pieces: list[np.ndarray] = []

        async def listen() -> None:
            async for event in generation:
                if isinstance(event.data, AudioDelta):
                    pieces.append(event.data.pcm)
                    heard = sum(map(len, pieces)) / 24
                    generation.tell(due_in_ms=0, heard_ms=heard, window_ms=400)

        await asyncio.wait_for(listen(), 20)
    wave, answer = np.concatenate(pieces), expected("text")
    assert len(wave) == len(answer.wave) and np.abs(wave - answer.wave).max() < TOLERANCE
    assert max(map(len, pieces)) <= 5 * 1920


@pytest.mark.parametrize(("window_ms", "frames"), [(400, 5), (479, 5), (10, 1), (4000, 10), (math.inf, 10)])
def test_a_chunk_is_no_longer_than_the_window(
    window_ms: float, frames: int, bench: Bench, ask: Callable[..., GenerateRequest]
) -> None:
    body = ask("text", code2wav={"first_chunk_frames": 10, "chunk_frames": 10})
    task: Any = bench.code2wav.open(Request(id="w", terminals=body.terminals, body=body), None)
    bench.code2wav.tell(task, Progress(0, 0, window_ms, "confirmed"))
    for n in range(frames):
        assert not isinstance(bench.code2wav.poll(task, 0.0), Ready)
        bench.code2wav.feed(task, Chunk("talker_ar", n, Frame((1,) * 16), False))
    assert isinstance(bench.code2wav.poll(task, 0.0), Ready)
    bench.code2wav.close(task, "aborted")
