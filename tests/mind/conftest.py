"""Real models, loaded once for these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.local import thinker_model


def _thinker(name: str, **options: int) -> Iterator[object]:
    pytest.importorskip("cyllama", reason="needs the extra 'local'")
    from antiphon.pipelines.local.thinker import Thinker

    try:
        path = thinker_model.installed(name)
    except WeightError as error:
        pytest.skip(f"needs the weight {name}: {error}")
    thinker = Thinker(path, **options)
    thinker.warm_up()
    yield thinker
    thinker.shut_down()


@pytest.fixture(scope="module")
def small() -> Iterator[object]:
    """SmolLM2 135M: quick enough for many answers."""
    yield from _thinker(thinker_model.SMALL, context=512, cells=8192, max_conversations=32)


@pytest.fixture(scope="module")
def mind() -> Iterator[object]:
    """The default model."""
    yield from _thinker(thinker_model.DEFAULT, context=2048, cells=8192, max_conversations=16)
