"""Conversations on real sockets, on stub models: turns, errors, keys, limits, endings."""

from __future__ import annotations

import asyncio
import base64

import httpx
import pytest

from antiphon.pipelines.errors import Busy, StageFailed
from antiphon.realtime.settings import Settings
from antiphon.session.features import Features
from tests.realtime.conversing import audio_of, hush, serving, talking, voice
from tests.realtime.rest.conftest import until
from tests.realtime.stubs import Script, StubClient

TEXT_TURN = [
    "session.created", "conversation.item.added", "conversation.item.done", "response.created",
    "response.output_item.added", "conversation.item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.done", "response.content_part.done",
    "conversation.item.done", "response.output_item.done", "response.done", "rate_limits.updated",
]  # fmt: skip
"""The order of the reference page's section 5.2."""


async def test_session_created_comes_at_once_and_whole() -> None:
    async with serving() as running, talking(running) as talk:
        created = await talk.until("session.created")
        session = created["session"]
        assert created["event_id"].startswith("event_")
        assert session["type"] == "realtime" and session["model"] == "stub" and session["id"].startswith("sess_")
        assert session["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        assert isinstance(session["expires_at"], int)


async def test_a_text_turn_in_the_order_of_the_protocol() -> None:
    async with serving() as running, talking(running) as talk:
        await talk.until("session.created")
        await talk.send("session.update", session={"type": "realtime", "output_modalities": ["text"]})
        await talk.until("session.updated")
        await talk.ask("hello")
        done = await talk.until("response.done")
        await talk.until("rate_limits.updated")
        seen = [t for n, t in enumerate(talk.types()) if t != "session.updated" and (n == 0 or talk.types()[n - 1] != t)]
        assert seen == TEXT_TURN
        assert done["response"]["output"][0]["content"][0]["text"] == "It is half past ten."
        ids = [e["event_id"] for e in talk.events]
        assert len(ids) == len(set(ids))
        assert not any("delta" in e and not isinstance(e["delta"], str) for e in talk.events)


async def test_a_spoken_turn_is_answered_aloud() -> None:
    client = StubClient()
    async with serving(client, features=Features(window_s=float("inf"))) as running, talking(running) as talk:
        await talk.say_hello(audio={"input": {"transcription": {"model": "whisper-1"}}})
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.8))
        started = await talk.until("input_audio_buffer.speech_started")
        await talk.until("input_audio_buffer.speech_stopped", item_id=started["item_id"])
        await talk.until("input_audio_buffer.committed", item_id=started["item_id"])
        await talk.until("response.done")
        transcript = next(e for e in talk.events if e["type"].endswith("transcription.completed"))
        assert transcript["transcript"] == "what time is it now" and transcript["usage"]["type"] == "duration"
        assert len(audio_of(talk.events)) == 48_000  # one second of the stub's voice, whole
        request = client.answers()[-1].request
        assert request.terminals == ("text", "audio")
        (part,) = request.messages[-1].parts
        assert part.format == "f32_16k" and 0.7 < len(part.data) / 64_000 < 1.3


async def test_an_early_answer_is_made_before_the_turn_is_over_and_released_whole() -> None:
    hold = asyncio.Event()
    client = StubClient(Script(hold=hold))
    async with serving(client) as running, talking(running) as talk:
        await talk.say_hello()
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.2))  # past maybe-over, not past the 500 ms of silence
        await until(lambda: client.answers() and client.answers()[0].made)
        (work,) = client.answers()
        assert work.request.listener == "early"
        assert "response.created" not in talk.types()
        await talk.speak(hush(0.5))
        hold.set()
        await talk.until("response.done")
        assert client.answers() == [work]
        assert {"listener": "confirmed"}.items() <= work.told[0].items()
        metrics = running.doors.state.metrics.text().decode()
        assert 'antiphon_early_responses_total{outcome="won"} 1.0' in metrics


async def test_barge_in_stops_the_answer_and_nothing_of_it_follows() -> None:
    client = StubClient(Script(audio_s=20.0, realtime_factor=0.3))
    async with serving(client) as running, talking(running) as talk:
        await talk.say_hello()
        await talk.ask("tell me a story")
        await talk.until("response.output_audio.delta")
        await talk.speak(voice(0.5))
        await talk.until("input_audio_buffer.speech_started")
        done = await talk.until("response.done")
        assert done["response"]["status"] == "cancelled"
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        await asyncio.sleep(0.3)
        at = talk.types().index("input_audio_buffer.speech_started")
        assert "response.output_audio.delta" not in talk.types()[at:]
        assert "asked" in client.answers()[0].timeline
        await until(lambda: not client.open)
        text = running.doors.state.metrics.text().decode()
        assert "antiphon_interruptions_total 1.0" in text
        assert 'antiphon_abort_seconds_count{moment="released"} 1.0' in text


async def test_the_answer_after_an_interruption_is_whole() -> None:
    """Thirty seconds made at ten times their pace are cut; what was left of them took frames of the next answer elsewhere."""
    client = StubClient(Script(audio_s=30.0, realtime_factor=0.1))
    async with serving(client) as running, talking(running) as talk:
        await talk.say_hello()
        await talk.ask("tell me a story")
        await talk.until("response.output_audio.delta")
        client.script = Script(audio_s=2.5, realtime_factor=0.1)
        await talk.speak(voice(0.5))
        await talk.until("response.done")
        await talk.speak(hush(1.0))
        done = await talk.until("response.done")
        deltas = [e for e in talk.events if e.get("response_id") == done["response"]["id"]]
        assert done["response"]["status"] == "completed" and len(audio_of(deltas)) == 2 * 60_000


async def test_a_forced_call_and_its_answer() -> None:
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}
    choice = {"type": "function", "name": "weather"}
    async with serving() as running, talking(running) as talk:
        await talk.say_hello(tools=[tool], output_modalities=["text"])
        await talk.send("response.create", response={"tool_choice": choice})
        done = await talk.until("response.function_call_arguments.done")
        assert (done["name"], done["arguments"]) == ("weather", '{"city": "Oslo"}')
        await talk.until("response.done")
        item = {"type": "function_call_output", "call_id": done["call_id"], "output": "rain"}
        await talk.send("conversation.item.create", item=item)
        await talk.send("response.create")
        await talk.until("response.output_text.done", text="It is half past ten.")


@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
async def test_g711_both_ways(kind: str) -> None:
    async with serving(features=Features(window_s=float("inf"))) as running, talking(running) as talk:
        audio = {"input": {"format": {"type": kind}}, "output": {"format": {"type": kind}}}
        await talk.say_hello(audio=audio)
        silence = b"\xff" if kind == "audio/pcmu" else b"\xd5"
        loud = bytes([0x80, 0x00]) * 4_000 if kind == "audio/pcmu" else bytes([0xAA, 0x2A]) * 4_000
        for piece in (loud, silence * 8_000):
            await talk.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
        await talk.until("input_audio_buffer.committed")
        await talk.until("response.done")
        assert len(audio_of(talk.events)) == 8_000


async def test_sixteen_kilohertz_when_a_session_asks_for_it() -> None:
    async with serving() as running, talking(running) as talk:
        session = await talk.say_hello(audio={"input": {"format": {"type": "audio/pcm", "rate": 16_000}}})
        assert session["audio"]["input"]["format"]["rate"] == 16_000
        await talk.send("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        await talk.until("session.updated")
        await talk.send("input_audio_buffer.append", audio=base64.b64encode(bytes(32_000)).decode())
        await talk.send("input_audio_buffer.commit")
        item = (await talk.until("conversation.item.added"))["item"]
        await talk.send("conversation.item.retrieve", item_id=item["id"])
        retrieved = (await talk.until("conversation.item.retrieved"))["item"]
        assert len(base64.b64decode(retrieved["content"][0]["audio"])) == 32_000


async def test_the_beta_dialect() -> None:
    async with serving(features=Features(window_s=float("inf"))) as running:
        headers = {"OpenAI-Beta": "realtime=v1"}
        async with talking(running, additional_headers=headers) as talk:
            created = await talk.until("session.created")
            await talk.until("conversation.created")
            assert created["session"]["modalities"] == ["text", "audio"] and "type" not in created["session"]
            await talk.send("session.update", session={"modalities": ["text", "audio"], "turn_detection": None})
            updated = await talk.until("session.updated")
            assert updated["session"]["turn_detection"] is None
            await talk.ask("hello")
            await talk.until("conversation.item.created")
            done = await talk.until("response.done")
            assert done["response"]["output"][0]["content"][0]["type"] == "audio"
            assert {"response.audio.delta", "response.audio_transcript.delta", "response.audio.done"} <= set(talk.types())
            assert not [t for t in talk.types() if "output_audio" in t or t.startswith("conversation.item.added")]
            assert len(audio_of(talk.events)) == 48_000


async def test_a_transcription_session_only_listens() -> None:
    async with serving() as running, talking(running, "?intent=transcription&model=whisper-1") as talk:
        created = await talk.until("session.created")
        assert created["session"]["type"] == "transcription"
        await talk.speak(voice(0.6))
        await talk.speak(hush(0.8))
        await talk.until("conversation.item.input_audio_transcription.completed", transcript="what time is it now")
        await talk.send("response.create")
        await talk.until("error")
        assert "response.created" not in talk.types()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(fail=StageFailed("thinker", "out of memory", code="model_error")), "model_error"),
        (Script(fail=ZeroDivisionError("a secret path")), "model_error"),
        (Script(refuse=Busy("past the bound")), "server_busy"),
    ],
    ids=["stage", "bug", "busy"],
)
async def test_a_failing_model_fails_the_response_and_the_session_goes_on(script: Script, code: str) -> None:
    client = StubClient(script)
    async with serving(client) as running, talking(running) as talk:
        await talk.say_hello(output_modalities=["text"])
        await talk.ask("hello")
        done = await talk.until("response.done")
        assert done["response"]["status"] == "failed"
        assert done["response"]["status_details"]["error"]["code"] == code
        assert "secret" not in str(talk.events)
        client.script = Script()
        await talk.send("response.create")
        assert (await talk.until("response.done"))["response"]["status"] == "completed"


async def test_one_conversations_fault_ends_that_conversation_only() -> None:
    async with serving() as running, talking(running) as other, talking(running) as talk:
        await other.say_hello()
        created = await talk.until("session.created")
        connection = running.doors.sessions.get(created["session"]["id"])
        connection._shell.machine.handle = lambda event, now: 1 / 0  # a planted bug
        await talk.send("input_audio_buffer.clear")
        error = (await talk.until("error"))["error"]
        assert error["type"] == "server_error" and "ZeroDivision" not in str(error)
        assert await talk.close_code() == 1011
        await other.send("session.update", session={"type": "realtime"})
        await other.until("session.updated")
        assert len(running.doors.sessions) == 1


# ---- how it ends


async def test_a_session_ends_at_its_longest_life() -> None:
    async with serving(features=Features(max_seconds=0.4)) as running, talking(running) as talk:
        error = (await talk.until("error"))["error"]
        assert error["code"] == "session_expired"
        assert await talk.close_code() == 1001
        assert talk.closed is not None and "maximum duration" in talk.closed[1]


async def test_going_down_waits_for_an_answer_then_closes_with_1001() -> None:
    hold = asyncio.Event()
    client = StubClient(Script(hold=hold))
    async with serving(client, drain_s=60.0) as running, talking(running) as idle, talking(running) as busy:
        await idle.until("session.created")
        await busy.say_hello(output_modalities=["text"])
        await busy.ask("hello")
        await busy.until("response.created")
        running.server.should_exit = True
        assert await idle.close_code() == 1001
        content = [{"type": "input_text", "text": "and then?"}]
        await busy.send("conversation.item.create", item={"id": "then", "type": "message", "role": "user", "content": content})
        while (await busy.until("conversation.item.added"))["item"]["id"] != "then":
            pass
        hold.set()
        assert await busy.close_code() == 1001
        done = next(e for e in busy.events if e["type"] == "response.done")
        assert done["response"]["status"] == "completed"


async def test_what_an_operator_sees() -> None:
    async with serving(settings=Settings(api_keys=("mine", "yours"))) as running, httpx.AsyncClient() as http:
        headers = {"Authorization": "Bearer mine"}
        async with talking(running, additional_headers=headers) as talk:
            await talk.say_hello()
            await talk.speak(voice(0.8))
            await talk.speak(hush(0.8))
            await talk.until("response.done", within=15.0)
            session_id = talk.events[0]["session"]["id"]
            assert (await http.get(f"{running.http}/v1/realtime/sessions")).status_code == 401
            mine = (await http.get(f"{running.http}/v1/realtime/sessions", headers=headers)).json()["data"]
            assert [s["id"] for s in mine] == [session_id] and mine[0]["closed_at"] is None
            yours = {"Authorization": "Bearer yours"}
            assert (await http.get(f"{running.http}/v1/realtime/sessions", headers=yours)).json()["data"] == []
            url = f"{running.http}/v1/realtime/sessions/{session_id}/trace"
            assert (await http.get(url, headers=yours)).status_code == 404
            (turn,) = (await http.get(url, headers=headers)).json()["timeline"]
            at = turn["at_ms"]
            assert 0 <= at["speech_started"] <= at["speech_stopped"] <= at["response_created"] <= at["first_audio"]
            assert turn["early"] == "won" and turn["status"] == "completed" and turn["generation_at_ms"]
            text = (await http.get(f"{running.http}/metrics")).text
        for line in (
            'antiphon_sessions_open{transport="websocket"} 1.0',
            'antiphon_turns_total{outcome="spoken"} 1.0',
            'antiphon_turn_phase_seconds_count{phase="voice_to_voice"} 1.0',
            'antiphon_responses_total{status="completed"} 1.0',
            "antiphon_graph_submitted",
            'antiphon_conversation_events_total{event="early_won"} 1.0',
            'antiphon_graph_stage_steps{stage="stub"} 1.0',
        ):
            assert line in text, line
        assert "half past ten" not in text
