"""The benchmark's own loop goes through the same modules as the stages do: what changes there must not leave it behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni import model
from benchmarks import qwen3_omni
from tests.qwen3_omni.oracle import Answer
from tests.qwen3_omni.test_broken_folders import change


def test_it_runs_to_its_last_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model, "load", model.load)  # it shares the modules between graph and loop by its own
    qwen3_omni.main(["--batches", "1,2", "--rounds", "1", "--tokens", "4", "--frames", "6"])
    said = capsys.readouterr().out
    assert said.count("graph over loop") == 1 and "4 tokens and 5 frames each" in said
    assert "abort to released" in said.splitlines()[-1]


def test_weights_that_end_by_themselves_do_as_much_work(
    folder: str, expected: Callable[[str], Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint whose first token and first code are its ends: the bare loop never heeded them."""
    ending, asked = expected("one token"), qwen3_omni.through_graph
    copy = tmp_path / "ends at once"
    shutil.copytree(folder, copy)
    change(copy / "config.json", "talker_config.codec_eos_token_id", ending.codes[0][0])
    change(copy / "generation_config.json", "eos_token_id", ending.tokens[0])
    made: list[tuple[int, float]] = []

    async def watched(client: Client, batch: int, tokens: int, frames: int) -> dict[str, float]:
        figures = await asked(client, batch, tokens, frames)
        made.append((batch * (frames - 1), figures["frames"]))
        return figures

    monkeypatch.setattr(model, "load", model.load)
    monkeypatch.setattr(qwen3_omni, "through_graph", watched)
    qwen3_omni.main(["--model", str(copy), "--batches", "1,2", "--rounds", "1", "--tokens", "4", "--frames", "6"])
    assert [wanted for wanted, _ in made] == [5, 5, 10]
    assert all(wanted == got for wanted, got in made)
