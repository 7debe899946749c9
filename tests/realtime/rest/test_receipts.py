"""On the real graph runtime, over a real socket: a client that leaves ends the work down to the stages."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.realtime.rest import stub_stage
from tests.realtime.rest.conftest import Serve, Server, hang_up_when, until

URL = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Count."}]}
AUDIO: dict[str, Any] = {**ASK, "modalities": ["text", "audio"], "audio": {"voice": "anna", "format": "pcm16"}}


async def all_released(server: Server) -> None:
    """The coordinator holds nothing any more: every lane has given its receipt."""
    await until(lambda: not server.stub._backend.coordinator.live)


@pytest.mark.parametrize("body", [ASK, AUDIO, {**ASK, "stream": True}, {**AUDIO, "stream": True}])
async def test_hanging_up_closes_every_stage(serve: Serve, body: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.rest")
    stub_stage.CLOSED.clear()
    stub_stage.OPENED.clear()
    wanted = {"thinker", "talker"} if body.get("modalities") else {"thinker"}
    async with serve(client=stub_stage.stub_pipeline(), socket=True) as server:
        await until(lambda: server.state.ready, 10)
        if body.get("stream"):
            async with server.http.stream("POST", URL, json={**body, "request_id": "gone"}) as response:
                lines = response.aiter_lines()
                for _ in range(8):
                    await anext(lines)
        else:
            asking = server.http.post(URL, json={**body, "request_id": "gone"})
            await hang_up_when(lambda: len(stub_stage.OPENED) == len(wanted), asking)
        await all_released(server)
        closed = list(stub_stage.CLOSED)
        await asyncio.sleep(0.05)
        assert closed == stub_stage.CLOSED
        assert {stage for request, stage in stub_stage.OPENED} == wanted, "a text request never opens the talker"
        assert {(request, stage, reason) for request, stage, reason, _ in closed} == {("gone", s, "aborted") for s in wanted}
        assert 'antiphon_abort_seconds_count{moment="released"} 1.0' in server.state.metrics.text().decode()
        # The id is free again, and the server serves.
        answer = await server.http.post(URL, json={**ASK, "request_id": "gone", "max_tokens": 3})
        assert answer.json()["choices"][0]["message"]["content"] == "1 2 3 "
        assert answer.json()["choices"][0]["finish_reason"] == "length"
    record = next(r for r in caplog.records if getattr(r, "ending", "") == "aborted")
    assert record.request_id == "gone"  # type: ignore[attr-defined]
    assert "released" in vars(record)["ms"]


async def test_many_at_once_each_get_their_own(serve: Serve) -> None:
    async with serve(client=stub_stage.stub_pipeline(0.001), socket=True) as server:
        await until(lambda: server.state.ready, 10)

        async def one(n: int) -> str:
            answer = await server.http.post(URL, json={**ASK, "max_tokens": n, "request_id": f"r{n}"})
            return str(answer.json()["choices"][0]["message"]["content"])

        counts = range(5, 25)
        said = await asyncio.gather(*(one(n) for n in counts))
    assert said == ["".join(f"{i} " for i in range(1, n + 1)) for n in counts]
