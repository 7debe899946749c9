"""Our stages against transformers' ``generate()``: ids, all sixteen codebooks and the waveform."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from antiphon.pipelines.requests import GenerateRequest
from tests.qwen3_omni.cases import CASES
from tests.qwen3_omni.driver import Bench, Made
from tests.qwen3_omni.oracle import Answer

TOLERANCE = 2e-5
SAMPLES_PER_FRAME = 1920
UNFINISHED = 555
Expected = Callable[[str], Answer]
Ask = Callable[..., GenerateRequest]


def assert_equal(made: Made, answer: Answer, tokens: bool = True) -> None:
    said = list(made.tokens)
    if made.finished is not None and made.finished.token >= 0:
        said.append(made.finished.token)
    assert said == (answer.tokens if len(said) == len(answer.tokens) else answer.tokens[:-1])
    assert made.codes == answer.codes
    assert len(made.wave) == len(answer.wave) == SAMPLES_PER_FRAME * len(answer.codes) - UNFINISHED
    assert np.abs(made.wave - answer.wave).max() < TOLERANCE


@pytest.mark.parametrize("name", list(CASES))
def test_equals_generate(name: str, bench: Bench, expected: Expected, ask: Ask) -> None:
    answer = expected(name)
    made = bench.run([ask(name)])[name]
    assert_equal(made, answer)
    assert made.finished is not None and made.finished.completion_tokens == len(answer.tokens)
