"""The entry keeps its lane free and its budget: long text is read in a thread, sound is counted before it is worked on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from antiphon.pipelines.errors import LONGEST, Refused
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.qwen3_omni.media import audio
from antiphon.pipelines.qwen3_omni.params import talker_params, thinker_params
from antiphon.pipelines.qwen3_omni.preprocessing import Preprocessing
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest, Message, TextPart


def request(*parts: Any, **changes: Any) -> GenerateRequest:
    return GenerateRequest(id="r", task="chat", terminals=("text",), messages=(Message("user", parts),), **changes)


async def test_text_is_read_beside_the_loop(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Preprocessing(folder)
    read, begun, go_on = stage.writer.ids, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*args: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60), "the loop stood still meanwhile"
        return read(*args)

    monkeypatch.setattr(stage.writer, "ids", slow)
    reading = asyncio.ensure_future(stage.prepare(request(TextPart("hello"))))
    await asyncio.wait_for(begun.wait(), 60)
    assert not reading.done()
    go_on.set()
    assert len((await reading).ids)


def test_one_tokenizer_serves_many_threads(folder: str) -> None:
    """The door's texts are read while answers are written with it."""
    tokenizer = read_tokenizer(folder)
    text = "Hello, how are you today? " * 40
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]

    def both(n: int) -> bool:
        return tokenizer(text, add_special_tokens=False)["input_ids"] == ids and tokenizer.decode(ids) == text

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(both, range(400)))


async def test_sound_that_cannot_fit_is_not_worked_on(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 places a second: 40 s do not fit into 256."""
    stage = Preprocessing(folder, context=256)
    monkeypatch.setattr(audio, "log_mel", None)
    long = AudioPart(np.zeros(40 * 16_000, "<f4").tobytes(), PCM_F32_16K)
    with pytest.raises(Refused, match=r"messages\[0\]\.parts\[0\]: takes 520 places of the prompt; the limit is 256"):
        await stage.prepare(request(long))


@pytest.mark.parametrize("value", [0, False])
def test_no_tokens_are_not_the_default_number_of_them(value: Any) -> None:
    for stage, read in (("thinker", lambda r: thinker_params(r, {})), ("talker", talker_params)):
        with pytest.raises(Refused, match=rf"stage_params\.{stage}\.max_tokens must be an integer from 1"):
            read(request(TextPart("x"), stage_params={stage: {"max_tokens": value}}))


def test_an_error_does_not_say_all_of_it_back() -> None:
    error = Refused("x" * 100_000, param="y" * 100_000)
    assert len(str(error)) == LONGEST + 3 and error.param is not None and len(error.param) == LONGEST
