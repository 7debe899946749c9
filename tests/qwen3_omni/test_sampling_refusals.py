"""What a request's own media parameters are refused with: the bounds in full, a wrong value no longer than it helps."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.media.budget import Sampling


@pytest.mark.parametrize("value", ["x" * 100_000, [1] * 10_000, -1, 16_777_217])
def test_a_refusal_tells_the_bounds_and_not_all_of_the_value(value: Any) -> None:
    with pytest.raises(Refused, match="min_pixels must be between 1024 and 16777216, not ") as refused:
        Sampling().changed({"min_pixels": value})
    assert len(str(refused.value)) < 150
