"""openai-python's own way to make a call: ``realtime.calls.create`` and ``hangup``, aiortc for the media."""

from __future__ import annotations

from typing import Any

import pytest
from aiortc import RTCSessionDescription

from tests.webrtc.calling import Caller, serving, settled

openai = pytest.importorskip("openai")


@pytest.mark.parametrize("session", [None, {"type": "realtime", "instructions": "Be brief."}])
async def test_a_call_is_made_and_hung_up(session: Any) -> None:
    async with serving() as running:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="any")
        caller = Caller(running)
        given = {"session": session} if session else {}
        answer = await client.realtime.calls.create(sdp=await caller.offer(), **given)
        call_id = answer.response.headers["Location"].rsplit("/", 1)[-1]
        assert call_id.startswith("rtc_")
        await caller.pc.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        created = (await caller.until("session.created"))["session"]
        assert session is None or created["instructions"] == "Be brief."
        async with client.realtime.connect(extra_query={"call_id": call_id}) as side:
            assert (await side.recv()).type == "session.created"
        caller.ask("hello")
        await caller.until("response.done")
        await client.realtime.calls.hangup(call_id)
        await settled(running)
        with pytest.raises(openai.NotFoundError):
            await client.realtime.calls.hangup(call_id)
        with pytest.raises(openai.BadRequestError, match="no audio"):
            await client.realtime.calls.create(sdp="v=0\r\n")
        await caller.close()
        await client.close()
