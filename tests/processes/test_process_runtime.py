"""The graph keeps its promises wherever its stages run: one process, the models apart, every stage apart, each relay."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from antiphon.pipelines.client import Client, Event, Generation
from antiphon.pipelines.errors import Aborted, Busy, Refused, StageFailed
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.requests import GenerateRequest
from tests.processes.stages import HERE, Piece, ask, spec

pytestmark = pytest.mark.asyncio(loop_scope="module")

VARIANTS: dict[str, dict[str, Any]] = {
    "one process": {"place": "one"},
    "models apart": {"place": "split"},
    "every stage apart": {"place": "apart"},
    "out and back": {"place": "middle"},
    "inline, one credit": {"place": "apart", "relay": "inline", "credits": 1},
    "shared": {"place": "apart", "relay": "shared"},
    "async twin": {"place": "apart", "factories": {"double": "AsyncDouble"}},
}


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=VARIANTS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    args = VARIANTS[request.param]
    async with Client(ProcessRuntime(spec(**args), max_requests=32)) as running:
        running.args = args  # type: ignore[attr-defined]
        yield running


async def read(generation: Generation) -> list[Piece]:
    return [event.data async for event in generation if not event.last]


def run_folder() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"antiphon-{os.getpid()}-")}


async def test_every_chunk_comes_in_order_and_the_end_once(client: Client) -> None:
    counts = (0, 1, 5, 40)
    generations = [client.generate(ask(f"n{n}", source={"n": n})) for n in counts]
    results = await asyncio.gather(*(read(g) for g in generations))
    assert [[p.number for p in pieces] for pieces in results] == [[4 * k for k in range(n)] for n in counts]
    for generation in generations:
        line = await asyncio.wait_for(generation.released(), 10)
        assert line["submitted"] <= line["started"] <= line["ended"] <= line["broadcast"] <= line["released"]
    assert client.running == 0
    stats = client.stats()["stages"]
    assert stats["source"]["requests"] >= 4 and stats["tail"]["steps"] >= sum(counts)


@pytest.mark.parametrize("size", [1, 3000, 100_000, 1_000_000])
async def test_arrays_arrive_whole_whatever_their_size(client: Client, size: int) -> None:
    pieces = await read(client.generate(ask(f"s{size}", source={"n": 5, "size": size})))
    for n, piece in enumerate(pieces):
        assert piece.pcm is not None and piece.pcm.dtype == np.float32 and piece.pcm.shape == (size,)
        assert bool((piece.pcm == 4 * n).all())
    assert len(pieces) == 5


async def test_a_refusal_out_of_a_stage_keeps_its_name(client: Client) -> None:
    with pytest.raises(Refused, match="cannot count that") as refused:
        await read(client.generate(ask("x", source={"refuse": "cannot count that"})))
    assert refused.value.param == "stage_params"


@pytest.mark.parametrize("stage", ["source", "tail"])
async def test_a_failing_stage_fails_its_request_only_and_keeps_its_secrets(client: Client, stage: str) -> None:
    good = client.generate(ask("good", source={"n": 30}))
    bad = client.generate(ask("bad", **{"source": {"n": 30}, stage: {"n": 30, "at": 7, "do": "explode"}}))
    with pytest.raises(StageFailed) as failed:
        await read(bad)
    assert "secret" not in str(failed.value) and failed.value.stage == stage and not failed.value.retryable
    assert len(await read(good)) == 30
    await asyncio.wait_for(asyncio.gather(bad.released(), good.released()), 10)


@pytest.mark.parametrize("after", [0, 1, 20])
async def test_an_abort_ends_at_once_and_is_released(client: Client, after: int) -> None:
    generation = client.generate(ask("forever", source={"n": 10**9, "size": 10_000}))
    seen: list[Event] = []
    if after == 0:
        generation.abort()
    with pytest.raises(Aborted, match="client"):
        async for event in generation:
            seen.append(event)
            if len(seen) == after:
                generation.abort()
                generation.abort()
    line = await asyncio.wait_for(generation.released(), 10)
    assert line["asked"] <= line["broadcast"] <= line["released"]
    assert len(seen) == after, "nothing of a request follows its end"


async def test_aborts_between_all_moments_leave_nothing(client: Client) -> None:
    generations = []
    for n in range(24):
        generation = client.generate(ask(f"a{n}", source={"n": 200, "size": 20_000 * (n % 3)}))
        generations.append(generation)
        asyncio.get_running_loop().call_later(0.002 * n, generation.abort)
    ends = await asyncio.gather(*(read(g) for g in generations), return_exceptions=True)
    assert all(isinstance(end, Aborted | list) for end in ends)
    await asyncio.wait_for(asyncio.gather(*(g.released() for g in generations)), 20)
    del ends
    assert len(await read(client.generate(ask("after", source={"n": 3})))) == 3
    assert client.running == 0


async def test_a_slow_reader_costs_a_bounded_amount(client: Client) -> None:
    generation = client.generate(ask("slow", source={"n": 100_000}))
    await asyncio.sleep(0.3)
    assert len(generation._handle.events) <= client.args.get("credits", 8)  # type: ignore[attr-defined]
    generation.abort()
    await asyncio.wait_for(generation.released(), 10)


async def test_many_at_once_each_get_their_own(client: Client) -> None:
    results = await asyncio.gather(*(read(client.generate(ask(f"m{n}", source={"n": n % 12}))) for n in range(32)))
    assert [[p.number for p in pieces] for pieces in results] == [[4 * k for k in range(n % 12)] for n in range(32)]


async def test_past_the_bound_it_is_busy(client: Client) -> None:
    held = [client.generate(ask(f"h{n}", source={"n": 10**9})) for n in range(32)]
    with pytest.raises(Busy):
        client.generate(ask("one more"))
    for generation in held:
        generation.abort()
    await asyncio.wait_for(asyncio.gather(*(g.released() for g in held)), 20)


async def test_an_id_that_comes_back_gets_nothing_of_its_former_use(client: Client) -> None:
    for _ in range(15):
        first = client.generate(ask("same", source={"n": 10**9, "size": 10_000}))
        async for _event in first:
            break
        first.abort()
        again = client.generate(ask("same", source={"n": 4}))
        assert [p.number for p in await read(again)] == [0, 4, 8, 12]
        assert first.ended


async def test_results_of_all_kinds_come_back(client: Client) -> None:
    result = None
    async for event in client.generate(ask("r", source={"n": 1})):
        result = event.data if event.last else None
    assert isinstance(result, dict) and type(result["by"]) is tuple
    apart = client.args["place"] in ("split", "apart")  # type: ignore[attr-defined]
    assert (result["by"][1] != os.getpid()) == apart


async def test_forgetting_reaches_every_lane(client: Client) -> None:
    client.forget("nobody")
    assert len(await read(client.generate(ask("f", "nobody", source={"n": 1})))) == 1


async def test_health_tells_every_lane_and_process(client: Client) -> None:
    told = client.health()
    assert set(told["lanes"]) == {"source", "double", "tail"} and set(told["lanes"].values()) == {"ready"}
    processes = {"one": 0, "split": 1, "apart": 3, "middle": 1}[client.args["place"]]  # type: ignore[attr-defined]
    assert len(told["processes"]) == processes
    assert all(p["state"] == "ready" and p["restarts"] == 0 for p in told["processes"].values())


async def test_nothing_grows_over_many_requests(client: Client) -> None:
    backend: ProcessRuntime = client._backend  # type: ignore[assignment]

    async def some(tag: str) -> None:
        for n in range(20):
            await read(client.generate(ask(f"{tag}{n}", source={"n": 4, "size": 20_000})))

    await some("warm")
    folder = backend._folder
    assert folder is not None
    before = sorted(os.listdir(folder.path))
    await some("more")
    await some("again")
    assert sorted(os.listdir(folder.path)) == before
    await asyncio.wait_for(backend.coordinator.drained(), 10)


async def test_ten_thousand_pieces_through_shared_slots_do_not_grow() -> None:
    def memory(pids: list[int]) -> list[int]:
        with_ = [Path(f"/proc/{pid}/statm") for pid in pids]
        return [int(p.read_text().split()[1]) - int(p.read_text().split()[2]) for p in with_]  # resident, without shared

    async with Client(ProcessRuntime(spec(place="apart", relay="shared", credits=4))) as client:
        folder: Any = client._backend._folder  # type: ignore[attr-defined]
        pids = [int(p["place"].split()[1]) for p in client.health()["processes"].values()]
        await read(client.generate(ask("warm", source={"n": 500, "size": 100})))
        files, before = sorted(os.listdir(folder.path)), memory(pids)
        count = 0
        async for event in client.generate(ask("many", source={"n": 3334, "size": 100})):  # over three edges each
            count += not event.last
        assert count == 3334
        assert sorted(os.listdir(folder.path)) == files
        pages = [after - had for after, had in zip(memory(pids), before, strict=True)]
        assert max(pages) < 1024, f"private pages grew by {pages}"


async def test_the_client_is_an_upstream_of_a_process() -> None:
    async with Client(ProcessRuntime(PipelineSpec(f"{HERE}:single", {"cls": "Echo"}))) as echo:
        generation = echo.generate(GenerateRequest(id="e", task="speech", terminals=("out",)), streams_input=True)

        async def speak() -> None:
            for n in range(50):
                await generation.feed(np.full(20_000, n, np.int16) if n % 2 else n)
            generation.finish()

        _, heard = await asyncio.gather(speak(), read(generation))
        assert [int(np.max(h)) for h in heard] == list(range(50))


async def test_what_cannot_travel_fails_its_request_and_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(ProcessRuntime(PipelineSpec(f"{HERE}:single", {"cls": "Odd"}))) as odd:
        generation = odd.generate(GenerateRequest(id="o", task="speech", terminals=("out",)))
        with pytest.raises(StageFailed, match="failed to process"):
            await read(generation)
        await asyncio.wait_for(generation.released(), 10)


async def test_stopping_aborts_what_runs_and_leaves_nothing() -> None:
    before = run_folder()
    client = Client(ProcessRuntime(spec(place="apart")))
    await client.start()
    (mine,) = run_folder() - before
    assert (os.stat(Path("/dev/shm") / mine).st_mode & 0o777) == 0o700
    pids = [int(p["place"].split()[1]) for p in client.health()["processes"].values()]
    generation = client.generate(ask("x", source={"n": 10**9, "size": 100_000}))
    await asyncio.sleep(0.1)
    await client.stop()
    with pytest.raises(Aborted, match="shutdown"):
        await read(generation)
    assert run_folder() == before
    assert not {str(pid) for pid in pids} & set(os.listdir("/proc"))
