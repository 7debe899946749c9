"""The tiny checkpoint, its oracle and its stages: built once in a test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the omni extra is not installed")
pytest.importorskip("transformers", reason="the omni extra is not installed")

import torch
import transformers

from antiphon.pipelines.requests import GenerateRequest
from tests.qwen3_omni import tiny
from tests.qwen3_omni.cases import CASES, Case
from tests.qwen3_omni.driver import Bench
from tests.qwen3_omni.oracle import Answer, Oracle

LEAST_GAP = 1e-5


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def built(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("tiny-qwen3-omni")
    return folder, tiny.build(folder)


@pytest.fixture(scope="session")
def folder(built: tuple[Path, Any]) -> str:
    return str(built[0])


@pytest.fixture(scope="session")
def oracle(built: tuple[Path, Any]) -> Oracle:
    return Oracle(built[1], tiny.tokenizer())


@pytest.fixture(scope="session")
def bench(folder: str) -> Bench:
    return Bench(folder)


@pytest.fixture(scope="session")
def expected(oracle: Oracle) -> Callable[[str], Answer]:
    """The oracle's answer to a case. Equality would be luck if two candidates were as near as rounding: gaps are asserted."""
    held: dict[str, Answer] = {}

    def answer(name: str) -> Answer:
        if name not in held:
            case = CASES[name]
            held[name] = oracle.answer(case.inputs(oracle), **case.limits)
            assert held[name].gap > LEAST_GAP, f"{name}: top-2 gap {held[name].gap:.1e}"
        return held[name]

    return answer


@pytest.fixture(scope="session")
def ask() -> Callable[..., GenerateRequest]:
    """A case as a request to our pipeline."""

    def request(name: str, **changes: Any) -> GenerateRequest:
        case: Case = CASES[name]
        return case.request(changes.pop("id", name), **changes)

    return request
