"""Deaths, hangs, failed starts, restarts: only what was inside fails, by name, and it comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon.pipelines import client as client_module
from antiphon.pipelines import run_folder, supervision
from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.errors import Aborted, Busy, ConfigError, PipelineError, StageFailed
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.run_folder import RunFolder, sweep
from antiphon.pipelines.worker import LANE_ENDED
from tests.processes.stages import HERE, ask, spec

ROOT = Path(__file__).parent.parent.parent
FORK = PipelineSpec(f"{HERE}:fork")


def runtime(pipeline: PipelineSpec = FORK, **groups: ProcessOptions) -> ProcessRuntime:
    return ProcessRuntime(pipeline, Placement(groups))


def pid(client: Client, name: str) -> int:
    return int(client.health()["processes"][name]["place"].split()[1])


async def numbers(generation: Generation) -> list[int]:
    return [event.data.number async for event in generation if not event.last]


async def eventually(client: Client, request: Any, within_s: float = 30.0) -> list[int]:
    """Ask until it is served; only "not now" is a reason to ask again."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await numbers(client.generate(request))
        except (Busy, StageFailed) as error:
            assert isinstance(error, Busy) or error.retryable, error
            assert time.monotonic() < deadline, f"not served again within {within_s} s: {error}"
        client.forget("somebody")  # what goes to every lane must not reach one that is starting
        await asyncio.sleep(0.02)


async def ends_inside(generation: Generation) -> StageFailed:
    """It must end by the death of its process."""
    with pytest.raises(StageFailed) as failed:
        await asyncio.wait_for(numbers(generation), 20)
    assert failed.value.retryable and failed.value.stage == "left"
    await asyncio.wait_for(generation.released(), 20)
    return failed.value


MISHAPS: dict[str, dict[str, Any]] = {
    "killed": {},
    "exits": {"at": 5, "do": "exit"},
    "hangs": {"at": 5, "do": "hang"},
    "loses its device": {"at": 5, "do": "lose"},
    "never gives the interpreter back": {"at": 5, "do": "spin"},
    "stopped": {},
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client() -> AsyncIterator[Client]:
    """One pipeline that outlives the deaths of several tests."""
    backend = runtime(left=ProcessOptions(step_limit_s=0.6))
    backend._crew.pause = lambda seconds: asyncio.sleep(0)  # back-off has a test of its own
    async with Client(backend) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("mishap", MISHAPS)
async def test_only_the_requests_inside_fail_and_the_stage_comes_back(client: Client, mishap: str) -> None:
    restarts = client.health()["processes"]["left.0"]["restarts"]
    other = client.generate(ask("other", terminal="right", source={"n": 400, "step_s": 0.003}))
    inside = client.generate(ask("inside", terminal="left", source={"n": 10**9}, left={"step_s": 0.01, **MISHAPS[mishap]}))
    reading = asyncio.create_task(numbers(other))
    async for event in inside:
        if event.data.number >= 6:
            break
    if mishap in ("killed", "stopped"):
        os.kill(pid(client, "left.0"), signal.SIGKILL if mishap == "killed" else signal.SIGSTOP)
    await ends_inside(inside)

    with pytest.raises(Busy, match="stage left is not available"):
        client.generate(ask("again", terminal="left", source={"n": 3}))
    told = client.health()
    assert "left" in told["lanes"]["left"] and told["lanes"]["right"] == told["lanes"]["source"] == "ready"
    assert told["processes"]["left.0"]["state"] == "restarting"
    assert await reading == [2 * n for n in range(400)], "the other side missed nothing"

    assert await eventually(client, ask("again", terminal="left", source={"n": 3})) == [0, 2, 4]
    told = client.health()
    assert set(told["lanes"].values()) == {"ready"} and told["processes"]["left.0"]["restarts"] == restarts + 1
    why = {
        "loses its device": f"exit status {LANE_ENDED}",
        "hangs": "stage 'left' has been in one step",
        "never gives the interpreter back": "no sign of life",
        "stopped": "no sign",
    }
    assert why.get(mishap, "") in told["processes"]["left.0"]["last_end"]
    await asyncio.wait_for(client._backend.coordinator.drained(), 10)


async def test_an_async_stage_that_blocks_its_loop_is_a_hang_too(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = spec(place="apart", factories={"double": "AsyncDouble"})
    async with Client(ProcessRuntime(pipeline, Placement({"double": ProcessOptions(step_limit_s=0.6)}))) as client:
        generation = client.generate(ask("r", source={"n": 3}, double={"block": True}))
        with pytest.raises(StageFailed) as failed:
            await asyncio.wait_for(numbers(generation), 20)
        assert failed.value.retryable and failed.value.stage == "double"
        assert "stage 'double' has been in one step" in client.health()["processes"]["double.0"]["last_end"]
        reports = [r.message for r in caplog.records if "double" in r.message]
        assert "is slow: stage 'double' has been in one step" in reports[0] and "is killed" in reports[1], (
            "reported, then killed"
        )
        assert await eventually(client, ask("again", source={"n": 2})) == [0, 4]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_hang_outside_of_a_step_is_one_too(client: Client) -> None:
    await ends_inside(client.generate(ask("opening", terminal="left", source={"n": 3}, left={"at": 0, "do": "hang"})))
    assert "stage 'left' has been in one step" in client.health()["processes"]["left.0"]["last_end"]
    assert await eventually(client, ask("again", terminal="left", source={"n": 3})) == [0, 2, 4]


@pytest.mark.asyncio(loop_scope="module")
async def test_it_dies_again_and_again_and_always_comes_back(client: Client) -> None:
    for n in range(3):
        inside = client.generate(ask(f"r{n}", terminal="left", source={"n": 10**9, "size": 60_000}))
        async for _ in inside:
            os.kill(pid(client, "left.0"), signal.SIGKILL)
            break
        await ends_inside(inside)
        assert await eventually(client, ask(f"a{n}", terminal="left", source={"n": 2, "size": 60_000})) == [0, 2]
    backend: Any = client._backend
    await asyncio.wait_for(backend.coordinator.drained(), 10)
    async with asyncio.timeout(30):  # who lives gives a slot back when it lets go of what lay there: a moment after its answer
        while backend._sockets.pool.in_use:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    files = os.listdir(backend._folder.path)
    life = client.health()["processes"]["left.0"]["restarts"]
    assert not [f for f in files if f.startswith("left.0.") and not f.startswith(f"left.0.{life}")], "only of its last life"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_doors_signals_do_not_end_a_worker(client: Client) -> None:
    generation = client.generate(ask("r", terminal="left", source={"n": 200, "step_s": 0.001}))
    for sign in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid(client, "left.0"), sign)
    assert len(await numbers(generation)) == 200


async def test_a_life_that_ends_before_it_serves_leaves_no_files() -> None:
    """Its shared memory is laid out long before that: each of a row of failed starts would keep some."""
    backend = runtime(PipelineSpec(f"{HERE}:fork", {"load_s": 1.0}))
    backend._crew.pause = lambda seconds: asyncio.sleep(0)
    async with Client(backend) as client:
        assert backend._folder is not None
        folder = backend._folder.path
        for life in range(3):
            async with asyncio.timeout(60):
                while "place" not in client.health()["processes"]["left.0"] or not [*folder.glob(f"left.0.{life}-*")]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            os.kill(pid(client, "left.0"), signal.SIGKILL)
        assert await eventually(client, ask("again", terminal="left", source={"n": 3})) == [0, 2, 4]
        assert client.health()["processes"]["left.0"]["restarts"] == 3
        lives = {tuple(file.name.split("-")[0].split(".")[:3]) for file in folder.glob("left.*")}
        assert lives == {("left", "0", "3")}


@pytest.mark.parametrize(
    ("cls", "error", "text"),
    [("Broken", ConfigError, "antiphon models pull"), ("Vanishing", StageFailed, "ended with status 9 while starting")],
)
async def test_a_failed_start_is_named_and_rolled_back_whole(cls: str, error: type[PipelineError], text: str) -> None:
    others = _children()
    client = Client(ProcessRuntime(spec(place="apart", factories={"tail": cls})))
    with pytest.raises(error, match=text):
        await client.start()
    assert not client.ready
    assert _children() <= others


async def test_a_failed_start_also_ends_the_lanes_that_were_still_loading() -> None:
    client = Client(ProcessRuntime(spec(place="one", factories={"tail": "Broken"}, load_s=0.5)))
    with pytest.raises(ConfigError, match="antiphon models pull"):
        await client.start()


async def test_a_start_that_takes_too_long_is_a_failed_one() -> None:
    others = _children()
    slow = ProcessRuntime(spec(place="split", load_s=60.0), Placement(default=ProcessOptions(start_limit_s=0.8)))
    with pytest.raises(StageFailed, match=r"not ready within 0\.8 s"):
        await Client(slow).start()
    assert _children() <= others


@pytest.mark.parametrize("where", ["a" * 80, "missing/folder"])
async def test_no_room_for_sockets_is_a_failed_start_with_a_name(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / where
    if "/" not in where:
        root.mkdir()
    monkeypatch.setattr(run_folder, "root", lambda: root)
    with pytest.raises(ConfigError, match="no room for sockets"):
        await Client(runtime()).start()
    assert not list(root.iterdir()) if root.exists() else True


async def test_progress_names_every_lane_once() -> None:
    told: list[str] = []
    client = Client(ProcessRuntime(spec(place="apart")))
    await client.start(told.append)
    await client.stop()
    assert sorted(told) == ["double", "source", "tail"]


async def test_a_worker_that_hangs_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    others = _children()
    monkeypatch.setattr(supervision, "STOP_S", 0.3)
    monkeypatch.setattr(client_module, "RECEIPTS_TIMEOUT_S", 0.2)
    client = Client(runtime())
    await client.start()
    generation = client.generate(ask("r", terminal="left", source={"n": 3}, left={"at": 1, "do": "hang"}))
    await asyncio.sleep(0.3)
    await asyncio.wait_for(client.stop(), 10)
    with pytest.raises(Aborted, match="shutdown"):
        await numbers(generation)
    assert _children() <= others


async def test_a_process_starts_with_its_own_environment() -> None:
    placement = Placement({"model": ProcessOptions(threads=3, env={"ANTIPHON_TEST": "x", "MKL_NUM_THREADS": "2"})})
    async with Client(ProcessRuntime(PipelineSpec(f"{HERE}:single", {"cls": "Environs"}), placement)) as client:
        events = [e async for e in client.generate(GenerateRequest(id="e", task="speech", terminals=("out",)))]
        assert events[-1].data == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "2", "ANTIPHON_TEST": "x"}


async def test_replicas_share_the_load_and_keep_their_conversations() -> None:
    placement = Placement({"model": ProcessOptions(replicas=2)})
    async with Client(ProcessRuntime(spec(place="split"), placement)) as client:

        async def where(name: str, conversation: str, n: int = 3) -> int:
            by = 0
            async for event in client.generate(ask(name, conversation, source={"n": n, "step_s": 0.002})):
                by = event.data["by"][1] if event.last else by
            return by

        at = dict(zip("abcd", await asyncio.gather(*(where(c, c, 50) for c in "abcd")), strict=True))
        assert sorted(list(at.values()).count(p) for p in set(at.values())) == [2, 2], "a new one goes to the least loaded"
        for n in range(3):
            assert {c: await where(f"{c}{n}", c) for c in "abcd"} == at, "a conversation stays where its cache is"

        inside = {c: client.generate(ask(f"long-{c}", c, source={"n": 10**9})) for c in "abcd"}
        for generation in inside.values():
            async for _ in generation:
                break
        victim = pid(client, "model.0")
        os.kill(victim, signal.SIGKILL)
        lost = [c for c in "abcd" if at[c] == victim]
        for c in lost:
            with pytest.raises(StageFailed) as failed:
                await asyncio.wait_for(numbers(inside[c]), 20)
            assert failed.value.retryable
        told = client.health()
        assert set(told["lanes"].values()) == {"ready"} and told["processes"]["model.0"]["state"] != "ready"
        assert await where("moved", lost[0]) == pid(client, "model.1"), "the other replica serves it at once"
        for c in set("abcd") - set(lost):
            seen = 0
            async for _ in inside[c]:
                seen += 1
                if seen == 20:
                    break
            inside[c].abort()
            await asyncio.wait_for(inside[c].released(), 10)


def test_when_the_parent_is_killed_nothing_stays() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.parent"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    told = json.loads(parent.stdout.readline())
    folder = Path(told["folder"])
    assert folder.is_dir() and all(_alive(p) for p in told["pids"])
    assert folder not in sweep(folder.parent), "it lives: nobody takes its folder"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(_alive(p) for p in told["pids"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [p for p in told["pids"] if _alive(p)]
    RunFolder().close()  # the next start
    assert not folder.exists()


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _children() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
