"""What clients see at the doors when a stage's process dies: a failure by name that may be retried; the rest goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from antiphon.pipelines.client import Client
from antiphon.pipelines.placement import PipelineSpec, Placement, ProcessOptions
from antiphon.pipelines.process_runtime import ProcessRuntime
from antiphon.realtime.settings import Settings
from tests.processes.playing import LATE_S, late_by
from tests.realtime.conversing import audio_of, serving, talking
from tests.realtime.rest.conftest import Server, calling, until

URL = "/v1/chat/completions"
TEXT: dict[str, Any] = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 3}
AUDIO: dict[str, Any] = {**TEXT, "modalities": ["text", "audio"], "audio": {"voice": "anna", "format": "pcm16"}}


async def ask(server: Server, body: dict[str, Any]) -> Any:
    return await server.http.post(URL, json=body)


async def test_a_death_behind_the_doors() -> None:
    runtime = ProcessRuntime(PipelineSpec("tests.processes.door_stub:build"))
    async with calling(Client(runtime), Settings()) as server:
        await until(lambda: server.state.ready, 20)
        assert (await server.http.get("/health")).json()["status"] == "ready"
        assert (await ask(server, AUDIO)).status_code == (await ask(server, TEXT)).status_code == 200

        speaking = asyncio.create_task(ask(server, {**AUDIO, "max_tokens": 10**6}))
        writing = asyncio.create_task(ask(server, {**TEXT, "max_tokens": 120}))
        await until(lambda: runtime.coordinator.stats.submitted >= 4)
        await until(lambda: any(handle.first_span_at is not None for handle in runtime.coordinator.live.values()))
        os.kill(int(runtime.health()["processes"]["voice.0"]["place"].split()[1]), signal.SIGKILL)

        failed = await speaking
        assert failed.status_code == 503 and int(failed.headers["Retry-After"]) >= 1
        assert "please retry" in failed.json()["error"]["message"]
        health = await server.http.get("/health")
        assert health.status_code == 503 and health.json()["status"] == "degraded"
        assert "talker" in health.json()["lanes"]["voice"] and health.json()["lanes"]["mind"] == "ready"
        refused = await ask(server, AUDIO)
        assert refused.status_code == 503 and "talker" in refused.json()["error"]["message"] and refused.headers["Retry-After"]
        assert (await ask(server, TEXT)).status_code == 200, "what needs no voice is served"
        written = await writing
        assert written.status_code == 200
        assert written.json()["choices"][0]["message"]["content"].split() == [str(n) for n in range(1, 121)]

        await until(lambda: set(runtime.health()["lanes"].values()) == {"ready"}, 30)
        assert (await ask(server, AUDIO)).status_code == 200
        assert (await server.http.get("/health")).json()["processes"]["voice.0"]["restarts"] == 1


async def test_a_death_in_mid_answer_is_one_sessions_affair() -> None:
    """Two conversations, each in a replica of the voice: one loses its answer and may ask again, the other hears no gap."""
    placement = Placement({"voice": ProcessOptions(replicas=2)})
    runtime = ProcessRuntime(PipelineSpec("tests.processes.door_stub:build", {"step_s": 0.02}), placement)
    async with serving(Client(runtime)) as running, talking(running) as first, talking(running) as second:
        for talk in (first, second):
            await talk.say_hello(output_modalities=["audio"], max_output_tokens=60)
            await talk.ask("Count.")
            await talk.until("response.output_audio.delta")
        lives = [h for h in runtime.coordinator.live.values() if h.end is None]
        at = {h.request.conversation: h.places["voice"] for h in lives}
        assert sorted(at.values()) == ["voice.0", "voice.1"], "a new one goes to the least loaded"
        os.kill(int(runtime.health()["processes"][lives[0].places["voice"]]["place"].split()[1]), signal.SIGKILL)

        lost = (await first.until("response.done"))["response"]
        assert lost["status"] == "failed" and lost["status_details"]["error"]["code"] == "server_error"
        kept = (await second.until("response.done", within=20))["response"]
        assert kept["status"] in ("completed", "incomplete")
        assert len(audio_of(second.events)) == 60 * 1920 * 2, "not a sample is missing"
        assert late_by(second.events, kept["id"], buffer_s=1.0) < LATE_S

        await first.ask("Again.")
        again = (await first.until("response.done", within=20))["response"]
        assert again["status"] in ("completed", "incomplete"), "the other replica serves it at once"
