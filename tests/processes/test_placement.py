"""Placement: what a declaration may ask of processes, where a conversation lives, what a killed run leaves."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli import backend
from antiphon.pipelines import splits
from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.homes import Homes
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions, WorkerSpec, environment, groups, settle
from antiphon.pipelines.run_folder import LOCK, NEW, RunFolder, sweep
from antiphon.pipelines.threads import VARIABLE, granted
from antiphon.settings import ProcessSettings, ServerSettings
from tests.processes.stages import HERE, build, spec


def two(**second: Any) -> PipelineConfig:
    a = StageConfig(name="a", factory=f"{HERE}:Source", process="x", stream_to=("b",), relay=second.pop("relay", ""))
    b = StageConfig(name="b", factory=f"{HERE}:Double", terminal="out", **{"process": "y", **second})
    return PipelineConfig("two", "a", [a, b])


def test_lanes_of_one_name_in_two_processes_are_two_lanes() -> None:
    settled = settle(two())
    assert {s.lane for s in settled.stages.values()} == {"x.main", "y.main"}
    assert settle(settled).lanes.keys() == settled.lanes.keys(), "settling twice changes nothing"
    assert settle(two(process="x")).lanes.keys() == {"main"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (two(tp_size=2), "b.tp_size"),
        (two(gpu=(0,)), "b.gpu"),
        (two(relay="nixl"), "a.relay='nixl' is not known; it can be reference, inline, shared"),
        (two(relay="reference"), "a.relay='reference': b runs in another process"),
        (two(process="a/b"), "b.process"),
        (two(process="a.b"), "b.process"),
        (two(process=""), "b.process"),
        (build(place="split", relay="reference"), "tail.relay='reference': its terminal is read in another process"),
    ],
)
def test_what_cannot_run_is_refused_by_stage_and_field(config: PipelineConfig, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settle(config)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (Placement({"modle": ProcessOptions()}), "'modle'"),
        (Placement({"model": ProcessOptions(replicas=0)}), "'model'"),
        (Placement(default=ProcessOptions(threads=0)), "'model'"),
        (Placement(default=ProcessOptions(step_limit_s=0)), "'model'"),
        (Placement({"model": ProcessOptions(start_limit_s=float("nan"))}), "start_limit_s must be more than 0"),
    ],
)
def test_options_of_no_process_or_without_sense_are_refused(placement: Placement, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        placement.check(build(place="split"))


@pytest.mark.parametrize(
    "pipeline", [PipelineSpec("nowhere:build"), PipelineSpec(f"{HERE}:nothing"), PipelineSpec(f"{HERE}:ask", {"name": "x"})]
)
def test_a_builder_that_makes_no_pipeline_is_named(pipeline: PipelineSpec) -> None:
    with pytest.raises(ConfigError, match=pipeline.builder.partition(":")[0]):
        pipeline.build()


def test_numeric_libraries_start_with_the_groups_threads() -> None:
    told = environment(ProcessOptions(threads=2, env={"OMP_NUM_THREADS": "4", "X": "y"}))
    assert (
        told["OMP_NUM_THREADS"] == "4" and told["MKL_NUM_THREADS"] == told["OPENBLAS_NUM_THREADS"] == "2" and told["X"] == "y"
    )


def test_the_default_split_keeps_every_model_out_of_the_door() -> None:
    local = "antiphon.pipelines.local.pipeline:build"
    stages = splits.build(local, {}, "one").stages
    assert groups(settle(splits.build(local, {}, "split"))).keys() == {"model"}
    assert groups(settle(splits.build(local, {}, "apart"))) == {name: [name] for name in stages}
    assert groups(splits.build(local, {}, "apart").in_one_process()).keys() == {"main"}


def test_a_workers_orders_survive_the_wire() -> None:
    told = WorkerSpec("m.0", "m", 3, "/tmp/x", "main", spec(place="split"), {"A": "b"}, ["/p"], 2.5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=WorkerSpec) == told
    assert told.owner == "m.0.3"


def test_a_conversation_stays_and_a_new_one_goes_to_the_least_loaded() -> None:
    homes = Homes(limit=3)
    assert homes.choose("g", "a", {"x": 1, "y": 0}) == "y"
    assert homes.choose("g", "a", {"x": 0, "y": 9}) == "y", "its cache is there"
    assert homes.choose("g", "", {"x": 0, "y": 0}) == "x", "of equals the one with fewer conversations"
    assert homes.choose("g", "b", {"x": 0, "y": 0}) == "x"
    assert homes.choose("g", "a", {"x": 0}) == "x", "it moves when its process cannot serve"
    homes.lost("x")
    assert homes.choose("g", "b", {"x": 3, "y": 2}) == "y"
    homes.forget("g", "b")
    assert homes.choose("g", "b", {"x": 2, "y": 3}) == "x"
    assert homes.choose("g", "c", {}) == ""
    for name in "defgh":
        homes.choose("g", name, {"x": 0, "y": 0})
    assert len(homes._at) == 3


def test_a_run_folder_is_private_and_goes_whole(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    (run.path / "x.seg").write_bytes(b"x")
    assert sweep(tmp_path) == [], "it lives"
    run.close()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    dead = RunFolder(tmp_path)
    (dead.path / "x.seg").write_bytes(b"x")
    os.close(dead._lock)  # as the kernel does at a SIGKILL
    foreign = tmp_path / "antiphon-foreign"
    foreign.mkdir()
    unborn = tmp_path / f"{NEW}1"
    unborn.mkdir()
    (unborn / LOCK).touch()
    alive = RunFolder(tmp_path)
    assert not dead.path.exists()
    assert foreign.exists(), "without our lock it is nobody's of ours"
    assert unborn.exists(), "it may be in the making"
    os.utime(unborn, (0, 0))
    held = os.open(unborn / LOCK, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert sweep(tmp_path) == []
    os.close(held)
    assert sweep(tmp_path) == [unborn]
    alive.close()


def test_the_doors_own_process_takes_a_limit_and_nothing_else() -> None:
    here = build(place="middle")
    Placement({"main": ProcessOptions(step_limit_s=1.0)}, ProcessOptions(replicas=2, threads=2)).check(here)
    for options in (ProcessOptions(replicas=2), ProcessOptions(threads=2), ProcessOptions(env={"A": "b"})):
        with pytest.raises(ConfigError, match="'main' is the door's own"):
            Placement({"main": options}).check(here)


def test_settings_become_a_placement() -> None:
    told = {"talker": ProcessSettings(replicas=2, step_limit_s=5.0, env={"A": "b"}), "thinker": ProcessSettings(threads=1)}
    placement = backend.placement(ServerSettings(processes="apart", threads=4, process=told))
    assert placement.of("talker") == ProcessOptions(replicas=2, threads=4, step_limit_s=5.0, env={"A": "b"})
    assert placement.of("thinker") == ProcessOptions(threads=1)
    assert placement.of("decode") == ProcessOptions(threads=4)


@pytest.mark.parametrize(("told", "threads"), [("3", 3), ("", 1), ("0", 1), ("many", 1), ("-2", 1)])
def test_an_engine_gets_the_threads_of_its_process(monkeypatch: pytest.MonkeyPatch, told: str, threads: int) -> None:
    monkeypatch.setenv(VARIABLE, told)
    assert granted() == threads
    assert environment(ProcessOptions(threads=3))[VARIABLE] == "3"
