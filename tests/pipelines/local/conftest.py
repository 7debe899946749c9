"""The real voice, loaded once; its tests skip, with the reason, where the weights are absent."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from antiphon.pipelines import weights
from antiphon.pipelines.errors import WeightError


@pytest.fixture(scope="session")
def hibari() -> Any:
    """The package itself: the oracle."""
    package = pytest.importorskip("hibari", reason="the extra `local` is not installed")
    return package.Hibari()


@pytest.fixture(scope="session")
def talker() -> Any:
    """As it is served: silence around clauses is trimmed."""
    pytest.importorskip("hibari", reason="the extra `local` is not installed")
    from antiphon.pipelines.local.talker import Talker

    try:
        weights.path("hibari-heart")
    except WeightError as e:
        pytest.skip(str(e))
    stage = Talker()
    stage.warm_up()
    return stage


@pytest.fixture(scope="session")
def plain_talker(talker: Any) -> Any:
    """As the package has it, silence and all (one net serves both)."""
    plain = copy.copy(talker)
    plain.trim = False
    return plain
