"""``stage_sampling``: sampling of one stage alone, checked like the request's own."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.pipeline import check_media
from antiphon.pipelines.requests import GenerateRequest, Message, Sampling, TextPart
from antiphon.pipelines.stage import Request
from antiphon.realtime.errors import BadRequest
from antiphon.realtime.rest.sampling import MAX_STOPS, by_stage


def request(**changes: Any) -> GenerateRequest:
    return GenerateRequest(id="r", task="chat", terminals=("text",), messages=(Message("user", (TextPart("hi"),)),), **changes)


def test_what_is_said_for_the_thinker_goes_over_the_request_s_own() -> None:
    said = by_stage({"thinker": {"temperature": 0, "stop": "end"}, "talker": {"seed": 4}})
    assert said == {"thinker": Sampling(temperature=0.0, stop=("end",)), "talker": Sampling(seed=4)}
    asked = request(sampling=Sampling(max_tokens=9, temperature=1.5, seed=3), stage_sampling=said)
    assert asked.thinking == Sampling(max_tokens=9, temperature=0.0, seed=3, stop=("end",))
    assert (asked.sampling_seed("thinker"), asked.sampling_seed("talker")) == (3, 4)
    assert request(sampling=Sampling(seed=3)).sampling_seed("talker") == 3
    assert by_stage(None) == {}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"thinker": {"temperature": "hot"}}, "stage_sampling.thinker.temperature"),
        ({"thinker": {"temperature": 2.5}}, "stage_sampling.thinker.temperature"),
        ({"talker": {"top_p": -0.1}}, "stage_sampling.talker.top_p"),
        ({"talker": {"top_k": 10**9}}, "stage_sampling.talker.top_k"),
        ({"talker": {"max_tokens": 0}}, "stage_sampling.talker.max_tokens"),
        ({"talker": {"seed": 2**70}}, "stage_sampling.talker.seed"),
        ({"thinker": {"stop": [""]}}, "stage_sampling.thinker.stop"),
        ({"thinker": {"stop": ["x"] * (MAX_STOPS + 1)}}, "stage_sampling.thinker.stop"),
        ({"thinker": 5}, "stage_sampling.thinker"),
        ({"t" * 100: []}, "stage_sampling." + "t" * 64),
    ],
)
def test_what_is_wrong_is_named(given: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        by_stage(given)
    assert caught.value.param == param


def test_a_field_that_is_none_is_named() -> None:
    with pytest.raises(BadRequest, match="temprature") as caught:
        by_stage({"talker": {"temprature": 1}})
    assert caught.value.param == "stage_sampling.talker"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"code2wav": Sampling(seed=1)}, r"stage_sampling\.code2wav: the stages that sample are thinker, talker"),
        ({"talker": Sampling(temperature=0.5)}, r"stage_sampling\.talker\.temperature is not read"),
    ],
)
def test_the_local_voice_refuses_what_it_does_not_sample(given: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        check_media(Request(id="r", terminals=("text",), body=request(stage_sampling=given)))
    check_media(Request(id="r", terminals=("text",), body=request(stage_sampling={"talker": Sampling(seed=2)})))
