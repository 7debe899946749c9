"""A stage that hangs in the door's own process, where nobody can kill it: named, refused, and back when it returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.pipelines.client import Client, Generation
from antiphon.pipelines.errors import Busy, StageFailed
from antiphon.pipelines.placement import Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.processes.stages import RETURN, ask, build, fork, spec
from tests.realtime.rest.conftest import calling, until

LIMIT_S = 0.5
HANGS = {"in a step": {"at": 3, "do": "hang"}, "in its open": {"at": 0, "do": "hang"}}


@pytest.fixture(autouse=True)
def back() -> Iterator[None]:
    """Whatever happens, no thread hangs after the test."""
    RETURN.clear()
    yield
    RETURN.set()


async def numbers(generation: Generation) -> list[int]:
    return [event.data.number async for event in generation if not event.last]


async def fails_in_time(generation: Generation, stage: str) -> None:
    began = time.monotonic()
    with pytest.raises(StageFailed) as failed:
        await asyncio.wait_for(numbers(generation), 10)
    assert failed.value.retryable and failed.value.stage == stage and time.monotonic() - began < 5


async def ready(client: Client) -> None:
    await until(lambda: set(client.health()["lanes"].values()) == {"ready"}, 5)


@pytest.mark.parametrize("hang", HANGS)
async def test_a_stage_that_hangs_beside_the_door(hang: str, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(LocalRuntime(fork().in_one_process(), step_limit_s=LIMIT_S))
    async with calling(client, Settings()) as server:
        await until(lambda: server.state.ready, 5)
        beside = asyncio.create_task(numbers(client.generate(ask("b", terminal="right", source={"n": 400, "step_s": 0.004}))))
        inside = client.generate(ask("inside", terminal="left", source={"n": 10}, left=HANGS[hang]))
        await fails_in_time(inside, "left")
        with pytest.raises(Busy, match=r"stage left is not available: stage 'left' has been in one step for more than 0\.5 s"):
            client.generate(ask("another", terminal="left", source={"n": 1}))
        told = await server.http.get("/health")
        assert told.status_code == 503 and told.json()["status"] == "degraded"
        assert "stage 'left'" in told.json()["lanes"]["left"] and "left" in told.json()["unavailable"]
        assert told.json()["lanes"]["right"] == told.json()["lanes"]["source"] == "ready"
        reports = [r.message for r in caplog.records if "'left'" in r.message]
        assert "is slow" in reports[0] and "its limit is 0.5 s" in reports[1], "reported, then given up"
        assert await beside == [2 * n for n in range(400)], "the other side missed nothing"
        kept = [request_id for request_id, _ in client._backend.coordinator.live]
        assert "inside" in kept, "no receipt: the device may still work for it"

        RETURN.set()
        await ready(client)
        assert (await server.http.get("/health")).status_code == 200
        await asyncio.wait_for(inside.released(), 5)
        assert await numbers(client.generate(ask("again", terminal="left", source={"n": 3}))) == [0, 2, 4]


async def test_a_hang_on_the_doors_lanes_beside_other_processes() -> None:
    placement = Placement({"main": ProcessOptions(step_limit_s=LIMIT_S)})
    async with Client(ProcessRuntime(spec(place="middle"), placement)) as client:
        inside = client.generate(ask("inside", source={"n": 10}, tail={"at": 3, "do": "hang"}))
        await fails_in_time(inside, "tail")
        assert "stage 'tail'" in client.health()["lanes"]["tail"] and client.health()["lanes"]["double"] == "ready"
        RETURN.set()
        await ready(client)
        assert await numbers(client.generate(ask("again", source={"n": 2}))) == [0, 4]


async def test_an_async_stage_that_blocks_its_loop() -> None:
    config = build(place="one", factories={"double": "AsyncDouble"})
    async with Client(LocalRuntime(config, step_limit_s=LIMIT_S)) as client:
        await fails_in_time(client.generate(ask("r", source={"n": 3}, double={"block": True})), "double")
        RETURN.set()
        await ready(client)
        assert await numbers(client.generate(ask("again", source={"n": 2}))) == [0, 4]


async def test_what_has_left_the_stage_goes_on() -> None:
    async with Client(LocalRuntime(build(place="one"), step_limit_s=LIMIT_S)) as client:
        passed = client.generate(ask("passed", source={"n": 8}, tail={"step_s": 0.1}))
        reading: Any = passed.__aiter__()
        first = await anext(reading)
        inside = client.generate(ask("inside", source={"at": 1, "do": "hang"}))
        await fails_in_time(inside, "source")
        assert [first.data.number, *[e.data.number async for e in reading if not e.last]] == [4 * n for n in range(8)]
        RETURN.set()
        for generation in (passed, inside):
            await asyncio.wait_for(generation.released(), 5)


async def test_the_end_does_not_wait_for_a_stage_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.pipelines import client as client_module
    from antiphon.pipelines import local_lanes

    monkeypatch.setattr(local_lanes, "STOP_TIMEOUT_S", 0.3)
    monkeypatch.setattr(client_module, "RECEIPTS_TIMEOUT_S", 0.2)
    client = Client(LocalRuntime(build(place="one"), step_limit_s=LIMIT_S))
    await client.start()
    await fails_in_time(client.generate(ask("r", source={"at": 1, "do": "hang"})), "source")
    await asyncio.wait_for(client.stop(), 5)
