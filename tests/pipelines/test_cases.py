"""Single cases of the runtime's rules, each small enough to be read."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.pipelines.errors import StageFailed
from antiphon.pipelines.graph import PipelineConfig
from antiphon.pipelines.handle import End, Handle
from antiphon.pipelines.messages import Event
from antiphon.pipelines.stage import Request
from tests.pipelines.by_hand import ByHand, stage
from tests.pipelines.dummies import Script, new_world


def photo_album(**caption: Any) -> PipelineConfig:
    return PipelineConfig(
        "album",
        "pre",
        [
            stage("pre", next=("think", "caption")),
            stage("caption", terminal="caption", next=("colour",), side=True, **caption),
            stage("colour", terminal="colour"),
            stage("think", "ar", terminal="text", stream_to=("voice",)),
            stage("voice", "xd", terminal="audio", start_on={"think": 2}),
        ],
    )


def run(config: PipelineConfig, script: Script, *terminals: str) -> tuple[Handle, list[Event | End], ByHand]:
    world = new_world()
    by_hand = ByHand(config, world)
    request = Request(id="r", terminals=terminals, body=script)
    script.streams = config.plan(request).streams
    handle = by_hand.coordinator.submit(request)
    log = by_hand.run([handle])[handle]
    assert not world.wrong
    assert by_hand.idle
    return handle, log, by_hand


@pytest.mark.parametrize("where", ["open", "step", "failure", "poll"])
def test_a_side_stage_that_fails_is_a_skip_for_what_follows(where: str) -> None:
    _, log, by_hand = run(photo_album(), Script(fail=("caption", where, 0)), "text", "caption", "colour")
    assert log[-1] == End("finished")
    ends = {e.terminal: e.skipped for e in log if isinstance(e, Event) and e.last}
    assert ends == {"text": False, "caption": True, "colour": True}
    assert "colour" not in [name for name, dummy in by_hand.world.stages.items() if dummy.conversations]


@pytest.mark.parametrize("where", ["open", "step", "failure", "poll"])
def test_who_asked_for_nothing_else_is_told_that_a_side_stage_failed(where: str) -> None:
    _, log, _ = run(photo_album(), Script(fail=("caption", where, 0)), "caption")
    assert isinstance(end := log[-1], End) and end.reason == "failed" and isinstance(end.error, StageFailed)


@pytest.mark.parametrize("where", ["open", "step", "failure", "poll"])
def test_any_other_stage_that_fails_ends_the_request(where: str) -> None:
    _, log, _ = run(photo_album(), Script(fail=("think", where, 0)), "text", "caption")
    end = log[-1]
    assert isinstance(end, End)
    assert end.reason == "failed"
    assert isinstance(end.error, StageFailed)
    assert "scripted" not in str(end.error), "an unexpected error's text stays in the log"


def test_a_close_that_fails_is_only_logged() -> None:
    _, log, _ = run(photo_album(), Script(fail=("think", "close", 0)), "text")
    assert log[-1] == End("finished")


def test_partial_start_opens_at_its_count_before_the_upstream_ends() -> None:
    world = new_world()
    config = photo_album()
    by_hand = ByHand(config, world)
    script = Script(counts={"think": 6})
    request = Request(id="r", terminals=("audio",), body=script)
    script.streams = config.plan(request).streams
    handle = by_hand.coordinator.submit(request)
    opened_after = None
    while not by_hand.idle:
        by_hand.as_threads_would()
        if opened_after is None and world.stages["voice"].open_tasks:
            seat = next(iter(by_hand.lanes["main"].riders.values())).seats["think"]
            opened_after = seat.sent
        while handle.read() is not None:
            pass
        world.now += 0.001
    assert opened_after == 2


def test_an_upstream_that_says_too_little_still_opens_what_waits_for_more() -> None:
    _, log, _ = run(photo_album(), Script(counts={"think": 1}), "audio")
    assert log[-1] == End("finished")
    assert [(e.last, e.skipped) for e in log if isinstance(e, Event)][-1] == (True, False)
    assert any(isinstance(e, Event) and not e.last for e in log)


def test_a_silent_upstream_skips_what_waits_for_it() -> None:
    _, log, by_hand = run(photo_album(), Script(counts={"think": 0}), "audio", "text")
    assert log[-1] == End("finished")
    ends = {e.terminal: e.skipped for e in log if isinstance(e, Event) and e.last}
    assert ends == {"text": False, "audio": True}
    assert not by_hand.world.stages["voice"].conversations


def test_a_conversation_is_forgotten_when_no_task_of_it_is_open() -> None:
    world = new_world()
    by_hand = ByHand(photo_album(), world)
    script = Script(counts={"think": 50})
    request = Request(id="r", terminals=("text",), body=script, conversation="c")
    handle = by_hand.coordinator.submit(request)
    for _ in range(5):
        by_hand.as_threads_would()
    by_hand.coordinator.forget("c")
    by_hand.coordinator.forget("another")
    for _ in range(3):
        by_hand.as_threads_would()
    assert world.stages["think"].forgotten == ["another"]
    handle.abort()
    by_hand.run([handle])
    assert world.stages["think"].forgotten == ["another", "c"]


def test_a_stage_that_ends_early_does_not_hold_up_its_upstream() -> None:
    config = PipelineConfig(
        "brief",
        "think",
        [
            stage("think", "ar", stream_to=("decode", "brief"), credits=2),
            stage("decode", "xd", terminal="text"),
            stage("brief", "cut", terminal="brief"),
        ],
    )
    _, log, _ = run(config, Script(counts={"think": 20, "brief": 1}), "text", "brief")
    assert log[-1] == End("finished")
    assert sum(isinstance(e, Event) and e.terminal == "text" and not e.last for e in log) >= 20


def test_a_task_that_opens_after_the_listener_was_confirmed_is_told_so() -> None:
    """An early answer whose transcript took longer than the silence: the confirmation comes before the Thinker opens."""
    world = new_world()
    config = PipelineConfig(
        "slow ears", "ears", [stage("ears", "xd", delay_s=1.0, next=("think",)), stage("think", "ar", terminal="text")]
    )
    by_hand = ByHand(config, world)
    request = Request(id="r", terminals=("text",), body=Script(), listener="early")
    handle = by_hand.coordinator.submit(request)
    by_hand.as_threads_would()
    handle.tell(due_in_ms=0.0, heard_ms=0.0, listener="confirmed")
    told: list[str] = []
    think = world.stages["think"]
    tell = think.tell
    think.tell = lambda task, progress: (told.append(progress.listener), tell(task, progress))[1]  # type: ignore[method-assign]
    by_hand.run([handle])
    assert told[:1] == ["confirmed"]
