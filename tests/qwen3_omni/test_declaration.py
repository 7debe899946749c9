"""The declaration: what a request would open, what is refused before any stage sees it, where the stages would run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from antiphon import settings
from antiphon.cli import backend
from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Voice
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Request

Ask = Callable[..., GenerateRequest]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"voice": Voice("nobody")}, "nobody"),
        ({"voice": Voice(speed=2.0)}, "speed"),
        ({"stage_params": {"singer": {}}}, "singer"),
        ({"stage_params": {"talker": {"pitch": 1}}}, "pitch"),
        ({"terminals": ("transcript",)}, "transcript"),
        ({"task": "speech"}, "no text for this request"),
        ({"task": "speech", "terminals": ("audio",), "voice": Voice("nobody")}, "nobody"),
        ({"task": "speech", "terminals": ("audio",), "voice": Voice(speed=1.5)}, "speed"),
        ({"task": "speech", "terminals": ("audio",), "voice": Voice(language="sw")}, "'sw'; they speak: en, zh"),
        ({"task": "speech", "terminals": ("audio",), "stage_params": {"talker": {"pitch": 1}}}, "pitch"),
        ({"task": "speech", "terminals": ("audio",), "kind": "prepare"}, "prepares nothing ahead"),
    ],
)
def test_refused_at_submit_by_name(folder: str, ask: Ask, changes: dict[str, Any], word: str) -> None:
    config = build(folder)
    body = ask("text")
    asked = {name: getattr(body, name) for name in body.__struct_fields__} | changes
    body = GenerateRequest(**asked)
    with pytest.raises(Refused, match=word):
        config.plan(Request(id="x", terminals=body.terminals, body=body, kind=body.kind))


def test_declared_shape(folder: str) -> None:
    text, speech = build(folder, speech=False), build(folder)
    assert (len(text.stages), len(speech.stages)) == (6, 8)
    assert speech.info.voices == ("ethan", "aiden", "chelsie")
    for preset in ("one_gpu", "two_gpus"):
        placed = build(folder, preset=preset)  # type: ignore[arg-type]
        assert placed.stages["talker_ar"].process != placed.stages["thinker"].process
        with pytest.raises(ConfigError, match=r"process|gpu"):
            LocalRuntime(placed)
    assert build(folder, preset="two_gpus").stages["talker_ar"].gpu == (1,)


def test_a_folder_is_called_by_its_name_however_it_is_written(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [build(way).info.model for way in (".", f"{folder}/", f"../{Path(folder).name}/.")] == [Path(folder).name] * 3


def test_a_transcript_is_a_side_branch(folder: str, ask: Ask) -> None:
    config = build(folder, transcriber="local")
    chat = config.plan(Request(id="x", terminals=("text", "transcript"), body=ask("audio")))
    assert set(chat.next["preprocessing"]) == {"audio_encoder", "mm_aggregate", "transcriber"}
    assert config.stages["transcriber"].side and "transcriber" not in chat.results["thinker"]
    plain = config.plan(Request(id="x", terminals=("text",), body=ask("audio")))
    assert "transcriber" not in plain.stages
    hear = GenerateRequest(id="h", task="transcription", terminals=("transcript",), audio=AudioPart(b"x"))
    assert config.plan(Request(id="h", terminals=("transcript",), body=hear)).stages == ("preprocessing", "transcriber")
    assert config.info.terminals["transcription"] == ("transcript",)
    with pytest.raises(Refused, match="transcription"):
        build(folder).plan(Request(id="h", terminals=("transcript",), body=hear))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"talker": {}}, "'talker' is not a stage of this pipeline; they are preprocessing"),
        ({"thinker": {"contxt": 5}}, "stage_args.thinker.contxt: it takes device, dtype, context"),
        ({"thinker": {"context": "long"}}, "stage_args.thinker.context: Expected `int`"),
        ({"preprocessing": {"budget": {"item": 3}}}, "stage_args.preprocessing.budget.item: it takes items"),
        ({"preprocessing": {"budget": {"items": "x"}}}, "stage_args.preprocessing.budget: Expected `int`"),
        ({"preprocessing": {"urls": {"allow": True}}}, "stage_args.preprocessing.urls.allow: it takes schemes"),
        ({"code2wav": {"chunk_frames": -1}}, "must not be less than 0"),
    ],
)
def test_a_wrong_stage_argument_is_named(args: Any, said: str, folder: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(folder, stage_args=args)


def test_the_settings_reach_the_stages(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(
        f'model = "{folder}"\ntranscriber = ""\n'
        "[stage.preprocessing]\nurls = {allow_private = true}\n[stage.thinker]\ncontext = 100\n"
    )
    config = backend.declare(settings.load(file, {})).build()
    stages = config.stages
    assert config.info.context_tokens == 100
    assert build(folder).info.context_tokens == 4096, "what the checkpoint itself can take"
    assert stages["preprocessing"].factory_args == {"folder": folder, "context": 100, "urls": {"allow_private": True}}
    assert stages["thinker"].factory_args["context"] == 100
    with pytest.raises(ConfigError, match="checkpoint folder"):
        backend.declare(settings.ServerSettings(stage={"thinker": {}}))


@pytest.mark.parametrize(("count", "devices"), [(0, ("cpu", "cpu")), (1, ("cuda:0", "cuda:0")), (8, ("cuda:0", "cuda:1"))])
def test_a_checkpoint_runs_where_the_gpus_are(
    count: int, devices: tuple[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless told otherwise, by a preset or by a stage's own device."""
    driver = tmp_path / "driver"
    driver.touch()
    monkeypatch.setattr(backend, "GPU_DRIVERS", (str(driver),))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    def places(**more: Any) -> tuple[str, str]:
        asked = settings.ServerSettings(model=folder, transcriber="", **more)
        stages = backend.declare(asked).build().stages
        return stages["thinker"].factory_args["device"], stages["talker_ar"].factory_args["device"]

    assert places() == devices
    assert places(preset="cpu") == ("cpu", "cpu")
    assert places(stage={"talker_ar": {"device": "cpu"}}) == ("cpu", "cpu")
    driver.unlink()
    assert places() == ("cpu", "cpu")


def test_without_the_local_extra_it_is_said_what_goes_without(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ctranslate2" else find(name, *rest))
    with pytest.raises(ConfigError, match=r"the local transcriber needs ctranslate2: .* --transcriber ''"):
        backend.declare(settings.ServerSettings(model=folder))
    assert backend.declare(settings.ServerSettings(model=folder, transcriber="")).build().info.voices
