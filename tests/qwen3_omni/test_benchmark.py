"""The benchmark's own loop goes through the same modules as the stages do: what changes there must not leave it behind."""

from __future__ import annotations

import pytest

from antiphon.pipelines.qwen3_omni import model
from benchmarks import qwen3_omni


def test_it_runs_to_its_last_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model, "load", model.load)  # it shares the modules between graph and loop by its own
    qwen3_omni.main(["--batches", "1,2", "--rounds", "1", "--tokens", "4", "--frames", "6"])
    said = capsys.readouterr().out
    assert said.count("graph over loop") == 1 and "4 tokens and 5 frames each" in said
    assert "abort to released" in said.splitlines()[-1]
