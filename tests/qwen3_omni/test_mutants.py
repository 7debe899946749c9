"""The comparison has teeth: every planted mistake changes ids, codes or samples."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.pipelines.qwen3_omni import code2wav, talker, talker_input, thinker
from antiphon.pipelines.requests import GenerateRequest
from tests.qwen3_omni.driver import Bench, Made
from tests.qwen3_omni.mutants import MUTANTS, Mutant
from tests.qwen3_omni.oracle import Answer
from tests.qwen3_omni.test_equal import assert_equal

USERS: dict[str, tuple[tuple[Any, str], ...]] = {
    "talker_input": ((talker, "TalkerInput"),),
    "code_predictor": ((talker, "residual_codes"),),
    "params": ((talker, "talker_params"),),
    "vocoder": ((code2wav, "Vocoder"),),
    "positions": ((talker_input, "Positions"),),
    "talker": (),
    "answer": ((thinker, "Answer"), (thinker, "End")),
}
"""Who has a mutated module's name at hand."""
REBUILT: dict[str, tuple[str, Any, str]] = {
    "vocoder": ("code2wav", code2wav, "Code2Wav"),
    "answer": ("thinker", thinker, "Thinker"),
}
"""The stage that has to be built again; for most it is the talker."""


def planted(mutant: Mutant) -> types.ModuleType:
    original = importlib.import_module(f"antiphon.pipelines.qwen3_omni.{mutant.module}")
    source = Path(str(original.__file__)).read_text()
    assert source.count(mutant.old) == 1, f"{mutant.name}: {source.count(mutant.old)} places read {mutant.old!r}"
    module = types.ModuleType(original.__name__)
    module.__dict__["__file__"] = original.__file__
    exec(compile(source.replace(mutant.old, mutant.new), str(original.__file__), "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_is_caught(
    mutant: Mutant,
    bench: Bench,
    folder: str,
    expected: Callable[[str], Answer],
    ask: Callable[..., GenerateRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = planted(mutant)
    for user, name in USERS[mutant.module]:
        monkeypatch.setattr(user, name, getattr(module, name))
    stage, home, name = REBUILT.get(mutant.module, ("talker", talker, "Talker"))
    factory = getattr(module if mutant.module == stage else home, name)
    changed = types.SimpleNamespace(**{**vars(bench), stage: factory(folder)})
    for method in ("run", "_round", "thinker_input"):
        setattr(changed, method, types.MethodType(getattr(Bench, method), changed))
    run: Any = changed
    made: Made = run.run([ask(mutant.case)])[mutant.case]
    with pytest.raises(AssertionError):
        assert_equal(made, expected(mutant.case))
