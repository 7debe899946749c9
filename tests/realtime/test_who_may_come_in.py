"""Keys, origins, limits, a server that is full or not ready: at the WebSocket's door, on stub models."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from antiphon.realtime.limits import Limits
from antiphon.realtime.settings import Settings
from tests.realtime.conversing import serving, talking
from tests.realtime.stubs import StubClient


def refused(event: dict[str, Any]) -> tuple[str, str]:
    return event["error"]["type"], event["error"]["code"]


async def test_keys_in_every_place_and_none() -> None:
    async with serving(settings=Settings(api_keys=("right",))) as running:
        for options in (
            {"additional_headers": {"Authorization": "Bearer right"}},
            {"additional_headers": {"api-key": "right"}},
            {"subprotocols": ["realtime", "openai-insecure-api-key.right", "openai-agents-sdk.x"]},
        ):
            async with talking(running, **options) as talk:
                await talk.until("session.created")
                assert talk.socket.subprotocol == ("realtime" if "subprotocols" in options else None)
        for options in ({}, {"additional_headers": {"Authorization": "Bearer wrong"}}):
            async with talking(running, **options) as talk:
                assert refused(await talk.until("error")) == ("invalid_request_error", "invalid_api_key")
                assert await talk.close_code() == 3000
                assert talk.types() == ["error"]
        assert running.doors.state.admission.open == 0


async def test_a_base_url_without_the_version_reaches_every_realtime_door() -> None:
    """The openai client puts its paths behind whatever base URL it is given."""
    async with serving() as running:
        client = AsyncOpenAI(base_url=running.http, api_key="any")
        minted = await client.realtime.client_secrets.create(session={"type": "realtime", "instructions": "Be brief."})
        async with AsyncOpenAI(base_url=running.http, api_key=minted.value).realtime.connect(model="m") as talk:
            created: Any = await talk.recv()
            assert created.session.instructions == "Be brief."
        assert (await client.beta.realtime.sessions.create()).client_secret.value.startswith("ek_")
        assert (await client.get("/realtime/sessions", cast_to=httpx.Response)).status_code == 200


async def test_an_ephemeral_key_carries_its_session() -> None:
    async with serving(settings=Settings(api_keys=("right",))) as running, httpx.AsyncClient() as http:
        url, headers = f"{running.http}/v1/realtime/client_secrets", {"Authorization": "Bearer right"}
        assert (await http.post(url, json={})).status_code == 401
        body = {"expires_after": {"anchor": "created_at", "seconds": 5}, "session": {"type": "realtime"}}
        bad = await http.post(url, json=body, headers=headers)
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "expires_after.seconds")
        session = {"type": "realtime", "instructions": "Speak like a pirate.", "audio": {"output": {"voice": "cedar"}}}
        minted = (await http.post(url, json={"session": session}, headers=headers)).json()
        assert minted["value"].startswith("ek_") and isinstance(minted["expires_at"], int)
        assert minted["session"]["object"] == "realtime.session" and minted["session"]["id"]
        key = f"openai-insecure-api-key.{minted['value']}"
        for _ in range(2):
            async with talking(running, subprotocols=["realtime", key]) as talk:
                told = (await talk.until("session.created"))["session"]
                assert told["instructions"] == "Speak like a pirate." and told["audio"]["output"]["voice"] == "cedar"
        transcription = await http.post(url, json={"session": {"type": "transcription"}}, headers=headers)
        key = f"openai-insecure-api-key.{transcription.json()['value']}"
        async with talking(running, subprotocols=["realtime", key]) as talk:
            assert (await talk.until("session.created"))["session"]["type"] == "transcription"
        wrong = await http.post(url, json={"session": {"type": "realtime", "tools": 3}}, headers=headers)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "session.tools")


async def test_the_betas_ways_to_mint_a_key() -> None:
    async with serving() as running, httpx.AsyncClient() as http:
        body = {"model": "gpt-4o-realtime", "voice": "verse", "modalities": ["text"], "temperature": 0.6}
        flat = (await http.post(f"{running.http}/v1/realtime/sessions", json=body)).json()
        assert flat["client_secret"]["value"].startswith("ek_") and isinstance(flat["client_secret"]["expires_at"], int)
        assert (flat["voice"], flat["modalities"], flat["temperature"]) == ("verse", ["text"], 0.6)
        key = f"openai-insecure-api-key.{flat['client_secret']['value']}"
        async with talking(running, subprotocols=["realtime", key, "openai-beta.realtime-v1"]) as talk:
            assert (await talk.until("session.created"))["session"]["voice"] == "verse"
        url = f"{running.http}/v1/realtime/transcription_sessions"
        flat = (await http.post(url, json={"input_audio_format": "g711_ulaw"})).json()
        assert flat["input_audio_format"] == "g711_ulaw" and flat["client_secret"]["value"]


async def test_a_browser_of_another_origin_is_refused_before_it_is_in() -> None:
    async with serving(settings=Settings(origins=("https://app.example",))) as running:
        async with talking(running, origin="https://app.example") as talk:
            await talk.until("session.created")
        with pytest.raises(InvalidStatus) as caught:
            async with connect(running.url, origin="https://evil.example"):
                pass
        assert caught.value.response.status_code == 403


async def test_a_server_that_is_full_says_so_and_never_hangs() -> None:
    async with serving(settings=Settings(limits=Limits(sessions=2))) as running, talking(running) as a:
        async with talking(running) as b:
            await a.until("session.created")
            await b.until("session.created")
            async with talking(running) as c:
                assert refused(await c.until("error", within=2.0)) == ("rate_limit_error", "server_busy")
                assert await c.close_code() == 1013
        async with talking(running) as d:
            await d.until("session.created")


async def test_responses_past_a_keys_rate_fail_and_say_why() -> None:
    async with serving(settings=Settings(limits=Limits(responses_per_minute=1))) as running, talking(running) as talk:
        await talk.say_hello(output_modalities=["text"])
        await talk.ask("one")
        assert (await talk.until("response.done"))["response"]["status"] == "completed"
        limits = (await talk.until("rate_limits.updated"))["rate_limits"]
        assert limits[0]["name"] == "requests" and (limits[0]["limit"], limits[0]["remaining"]) == (1, 0)
        await talk.send("response.create")
        details = (await talk.until("response.done"))["response"]["status_details"]
        assert details["error"]["code"] == "rate_limit_exceeded"


async def test_an_audio_session_on_a_pipeline_without_a_voice_is_refused_by_name() -> None:
    from msgspec.structs import replace

    from tests.realtime.stubs import INFO

    mute = replace(INFO, terminals={"chat": ("text",)})
    async with serving(StubClient(info=mute)) as running, talking(running) as talk:
        created = await talk.until("session.created")
        assert created["session"]["output_modalities"] == ["text"]
        await talk.send("session.update", session={"type": "realtime", "output_modalities": ["audio"]}, event_id="e1")
        error = (await talk.until("error"))["error"]
        assert error["event_id"] == "e1" and "audio" in error["message"]
        await talk.ask("hello")
        await talk.until("response.done")


async def test_a_plain_request_is_told_to_upgrade() -> None:
    async with serving() as running, httpx.AsyncClient() as http:
        response = await http.get(f"{running.http}/v1/realtime")
        assert response.status_code == 426 and response.json()["error"]["message"]


async def test_a_server_that_is_not_ready_says_which_way() -> None:
    async with serving() as running:
        running.doors.state._ready.clear()
        async with talking(running) as talk:
            assert refused(await talk.until("error")) == ("server_error", "starting")
            assert await talk.close_code() == 1013
        running.doors.state._ready.set()
        running.doors.state.admission.closing = True
        async with talking(running) as talk:
            assert refused(await talk.until("error"))[1] == "server_shutting_down"
            assert await talk.close_code() == 1013
        assert running.doors.state.admission.open == 0
