"""``stage_sampling``: the thinker and the talker each choose in their own way, and neither's way is the other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.qwen3_omni.params import check_stage_params, talker_params, thinker_params
from antiphon.pipelines.requests import GenerateRequest, Sampling
from tests.qwen3_omni.driver import Bench
from tests.qwen3_omni.oracle import Answer
from tests.qwen3_omni.test_equal import assert_equal

Ask = Callable[..., GenerateRequest]
Expected = Callable[[str], Answer]


def asked(ask: Ask, said: dict[str, Sampling], **changes: Any) -> GenerateRequest:
    """Without any ``stage_params`` but the talker's limit."""
    stage_params = {"talker": {"max_tokens": 18}}
    return ask("text", stage_sampling=said, **{"stage_params": stage_params, **changes})


def test_a_seeded_talker_and_a_greedy_thinker_are_the_reference_s(bench: Bench, ask: Ask, expected: Expected) -> None:
    """The case of ``stage_params``, said the other way."""
    said = {"talker": Sampling(temperature=0.9, seed=123, max_tokens=18)}
    made = bench.run([ask("sampled", id="s", stage_params={}, stage_sampling=said)])["s"]
    assert_equal(made, expected("sampled"))
    greedy = bench.run(
        [ask("text", id="g", stage_params={}, stage_sampling={"talker_ar": Sampling(temperature=0.0, max_tokens=18)})]
    )
    assert_equal(greedy["g"], expected("text"))


def test_the_last_that_speaks_wins(ask: Ask) -> None:
    base = ask("text", sampling=Sampling(max_tokens=7, temperature=0.3, seed=1, stop=("a",)), stage_params={})
    assert (thinker_params(base, {}).sampling.temperature, talker_params(base).sampling.seed) == (0.3, 1)
    params = {"thinker": {"temperature": 0.5, "top_k": 9}, "talker": {"seed": 2, "temperature": 0.1}}
    said = {"thinker": Sampling(temperature=0.7, max_tokens=5, stop=("b",)), "talker": Sampling(seed=3)}
    both = ask("text", sampling=base.sampling, stage_params=params, stage_sampling=said)
    thinking, talking = thinker_params(both, {}), talker_params(both)
    assert (thinking.sampling.temperature, thinking.sampling.top_k, thinking.sampling.seed) == (0.7, 9, 1)
    assert (thinking.max_tokens, thinking.stops) == (5, ("b",))
    assert (talking.sampling.seed, talking.sampling.temperature, talking.sampling.top_k) == (3, 0.1, 50)
    only = ask("text", stage_params={}, stage_sampling={"thinker": Sampling(top_p=0.5)})
    assert thinker_params(only, {}).sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"code2wav": Sampling(seed=1)}, r"stage_sampling\.code2wav: the stages that sample are thinker, talker"),
        ({"talker": Sampling(stop=("x",))}, r"stage_sampling\.talker\.stop"),
    ],
)
def test_what_nobody_samples_is_refused(said: dict[str, Sampling], told: str, ask: Ask) -> None:
    with pytest.raises(Refused, match=told) as caught:
        check_stage_params(asked(ask, said))
    assert caught.value.param == "stage_sampling"


def test_a_bound_is_told_with_its_field(ask: Ask) -> None:
    with pytest.raises(Refused, match=r"stage_sampling\.talker\.temperature must be between 0 and 2"):
        talker_params(asked(ask, {"talker": Sampling(temperature=5.0)}))
    with pytest.raises(Refused, match=r"^repetition_penalty must be between") as caught:
        thinker_params(asked(ask, {}, sampling=Sampling(repetition_penalty=0.01)), {})
    assert caught.value.param == "repetition_penalty"
