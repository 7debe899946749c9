"""A checkpoint that has no talker, as those that only write are published: served without speech, or refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from antiphon.pipelines.client import Client
from antiphon.pipelines.engines.torch.checkpoint import INDEX
from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.outputs import TextDelta, TextResult
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.runtime import LocalRuntime

Ask = Callable[..., GenerateRequest]


@pytest.fixture(scope="module")
def writer(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The tiny checkpoint with the thinker's tensors alone, and a config that names nothing else."""
    made = tmp_path_factory.mktemp("writer")
    held: dict[str, Any] = {}
    with ExitStack() as stack:
        for path in Path(folder).iterdir():
            if path.suffix == ".safetensors":
                shard = stack.enter_context(safe_open(str(path), framework="pt"))
                held |= {name: shard.get_tensor(name) for name in shard.keys() if name.startswith("thinker.")}  # noqa: SIM118
            elif path.name != INDEX:
                shutil.copy(path, made / path.name)
        save_file(held, made / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((made / "config.json").read_text())
    del config["talker_config"], config["code2wav_config"]
    (made / "config.json").write_text(json.dumps({**config, "enable_audio_output": False}))
    yield str(made)


def test_speech_is_refused_with_the_remedy(writer: str) -> None:
    with pytest.raises(WeightError, match="does not speak: --text-only serves it"):
        build(writer)


async def test_it_writes_what_the_whole_model_writes_and_reads_ahead(writer: str, folder: str, ask: Ask) -> None:
    """Of a prompt that is read ahead a talker may want what the thinker heard and saw: here there is none to want it."""
    said, cached = [], []
    for where, kinds in ((writer, ("prepare", "generate")), (folder, ("generate",))):
        async with Client(LocalRuntime(build(where, speech=False))) as client:
            for kind in kinds:
                terminals = ("text",) if kind == "generate" else ()
                body = ask("audio and image", id=kind, kind=kind, terminals=terminals, conversation="one", listener="none")
                generation = client.generate(body)
                events = [event.data async for event in generation]
                await generation.released()
            said.append("".join(data.text for data in events if isinstance(data, TextDelta)))
            cached.append(next(data.usage.cached_tokens for data in events if isinstance(data, TextResult)))
    assert said[0] == said[1] != ""
    assert cached[0] > cached[1] == 0, "nothing was read ahead"
