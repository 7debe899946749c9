"""Validation speaks at start-up, by name; what runs is derived per request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.pipelines.stage import Merge, Request
from tests.pipelines.by_hand import stage
from tests.pipelines.dummies import Script


def merge(request: Request, parts: Merge) -> Any:
    return dict(parts)


def pair(**second: Any) -> list[StageConfig]:
    return [stage("a", "ar", stream_to=("b",), credits=4), stage("b", "xd", terminal="out", **second)]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([stage("a", next=("ghost",))], r"a\.next names an unknown stage 'ghost'"),
        ([stage("a", stream_to=("ghost",))], r"a\.stream_to names an unknown stage 'ghost'"),
        ([stage("a", terminal="out", start_on={"ghost": 1})], r"a\.start_on names an unknown stage 'ghost'"),
        ([stage("a")], "a leads nowhere"),
        ([stage("a", terminal="out"), stage("b", terminal="x")], r"unreachable from 'a': \['b'\]"),
        ([stage("a", next=("b",)), stage("b", next=("a",))], r"cycle among \['a', 'b'\]"),
        (
            [stage("a", next=("b", "c")), stage("b", terminal="t"), stage("c", terminal="t")],
            "terminal 't' is made by both b and c",
        ),
        (pair(start_on={"a": 5}), r"b\.start_on: 5 chunks of 'a' can never be under way"),
        (pair(start_on={"b": 1}), r"b\.start_on: 'b' never streams to it"),
        ([stage("a", next=("b",), stream_to=("b",)), stage("b", terminal="t")], "is in next and in stream_to"),
        (
            [stage("a", next=("b", "c")), stage("b", next=("d",)), stage("c", next=("d",)), stage("d", terminal="t")],
            r"d gets Results from \['b', 'c'\] and has no merge_fn",
        ),
        ([stage("a", terminal="t", credits=0)], r"a\.credits must be at least 1"),
        ([stage("a", terminal="t", tp_size=2, gpu=(0,))], "tp_size=2 needs as many GPUs"),
        (
            [stage("a", next=("b",), tp_size=2, gpu=(0, 1)), stage("b", terminal="t", gpu=(1,))],
            r"b\.gpu \[1\] lies inside a's tensor-parallel range",
        ),
        ([stage("a", terminal="t"), stage("a", terminal="u")], "'a' is taken"),
    ],
)
def test_a_wrong_declaration_is_named(stages: list[StageConfig], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PipelineConfig("p", "a", stages)


def test_an_unknown_entry_is_named() -> None:
    with pytest.raises(ConfigError, match="entry 'nobody'"):
        PipelineConfig("p", "nobody", [stage("a", terminal="t")])


@pytest.mark.parametrize("field", [{"tp_size": 2, "gpu": (0, 1)}, {"process": "other"}, {"gpu": (0,)}, {"relay": "nccl"}])
def test_a_field_that_the_runtime_does_not_execute_is_refused(field: dict[str, Any]) -> None:
    config = PipelineConfig("p", "a", [stage("a", terminal="t", **field)])
    with pytest.raises(ConfigError, match=rf"a\.({'|'.join(field)})"):
        LocalRuntime(config)


def diamond(**of_d: Any) -> list[StageConfig]:
    """a streams to d, and d opens on something that a itself makes possible."""
    return [
        stage("a", "ar", stream_to=("d", "b"), credits=2),
        stage("b", "xd", stream_to=("c",), credits=2),
        stage("c", "xd", next=("d",)),
        stage("d", "xd", terminal="out", merge_fn=merge, **of_d),
    ]


def test_a_stage_that_can_wait_for_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="a can wait for itself"):
        PipelineConfig("p", "a", diamond())


def test_two_requests_that_can_hold_each_others_slots_are_refused() -> None:
    """x and y each hold their one slot until z opens on a chunk of both, and each comes after the other's request."""
    stages = [
        stage("pre", next=("x", "y")),
        stage("x", "ar", max_open=1, stream_to=("z",), credits=1),
        stage("y", "ar", max_open=1, stream_to=("z",), credits=1),
        stage("z", "xd", start_on={"x": 1, "y": 1}, terminal="audio"),
    ]
    with pytest.raises(ConfigError, match="can wait for itself"):
        PipelineConfig("p", "pre", stages)


def forked() -> PipelineConfig:
    def route(request: Request) -> tuple[str, ...]:
        return tuple(request.body.route)

    return PipelineConfig(
        "forked",
        "pre",
        [
            stage("pre", next=("ears", "eyes", "think"), route_fn=route),
            stage("ears", next=("think",), terminal="transcript"),
            stage("eyes", next=("think",)),
            stage("think", "ar", stream_to=("decode", "voice"), merge_fn=merge, prepares=True),
            stage("decode", "xd", terminal="text"),
            stage("voice", "xd", terminal="audio"),
        ],
    )


def ask(*terminals: str, route: tuple[str, ...] = ("think",), kind: Any = "generate") -> Request:
    return Request(id="r", terminals=terminals, body=Script(route), kind=kind)


def test_only_what_leads_to_a_wanted_terminal_is_live() -> None:
    plan = forked().plan(ask("text"))
    assert set(plan.stages) == {"pre", "think", "decode"}
    assert plan.stream["think"] == ("decode",)


def test_the_fan_in_shrinks_to_the_media_that_are_there() -> None:
    config = forked()
    assert config.plan(ask("text", route=("think",))).results["think"] == {"pre"}
    assert config.plan(ask("text", route=("ears", "eyes"))).results["think"] == {"ears", "eyes"}
    assert config.plan(ask("text", route=("ears", "think"))).results["think"] == {"pre", "ears"}


def test_a_terminal_that_no_path_makes_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="no transcript") as refused:
        forked().plan(ask("text", "transcript"))
    assert refused.value.param == "modalities"
    with pytest.raises(Refused, match="no video"):
        forked().plan(ask("video"))


def test_a_prepare_request_ends_at_the_stage_that_prepares() -> None:
    plan = forked().plan(ask(kind="prepare"))
    assert plan.ends == {"prepared:think": "think"}
    assert set(plan.stages) == {"pre", "think"}


def test_a_route_out_of_the_declaration_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"pre\.route_fn chose \['voice'\]"):
        forked().plan(ask("text", route=("voice",)))


def test_in_one_process_keeps_lanes_of_different_processes_apart() -> None:
    stages = [
        replace(stage("a", stream_to=("b",), lane="l"), process="one"),
        replace(stage("b", "xd", terminal="t", lane="l"), process="two"),
    ]
    merged = PipelineConfig("p", "a", stages).in_one_process()
    assert set(merged.lanes) == {"one.l", "two.l"}
    assert {s.process for s in merged.stages.values()} == {"main"}
