"""openai-agents, the Python agents SDK, over its own WebSocket model."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.model_inputs import RealtimeModelSendRawMessage
from common import KEY, STORY, URL, Log, report, speak

called: list[str] = []
sessions: list[Any] = []


async def choose(tool_choice: str) -> None:
    message: Any = {
        "type": "session.update",
        "other_data": {"session": {"type": "realtime", "tool_choice": tool_choice}},
    }
    await sessions[0].model.send_event(RealtimeModelSendRawMessage(message=message))


@function_tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    called.append(city)
    await choose("none")  # else the answer to it would be a call again
    return "rain"


async def main() -> None:
    log = Log()
    agent = RealtimeAgent(name="assistant", instructions="Answer in one short sentence.", tools=[get_weather])
    config: Any = {"url": f"{URL}?model=gpt-realtime", "api_key": KEY, "initial_model_settings": {"tool_choice": "none"}}
    async with await RealtimeRunner(agent).run(model_config=config) as session:
        sessions.append(session)

        async def read() -> None:
            async for event in session:
                log.push(event)

        def raw(kind: str, after: int = 0) -> list[Any]:
            return [e.data for e in log.seen[after:] if e.type == "raw_model_event" and e.data.type == kind]

        def history(role: str) -> list[Any]:
            return [i for i in session._history if getattr(i, "role", None) == role]

        async def agent_end() -> Any:
            return await log.type("agent_end")

        async def text_turn() -> str:
            await session.send_message("Say hello.")
            await agent_end()
            said = history("assistant")[-1].content[0].transcript
            assert said
            return str(said)

        async def spoken_turn() -> str:
            await speak(session.send_audio)
            await log.type("audio")
            await agent_end()
            await log.next(lambda _: history("user") and history("user")[-1].content[0].transcript, within=10.0)
            return str(history("user")[-1].content[0].transcript)

        async def tool_call() -> str:
            await choose("required")
            await session.send_message("What is the weather in Oslo?")
            await log.type("tool_end")
            assert len(called) == 1, called
            await log.type("audio")
            await agent_end()
            return f"{called[0]} -> {history('assistant')[-1].content[0].transcript}"

        async def barge_in() -> str:
            at = len(log.seen)
            await session.send_message(STORY)
            await log.type("audio")
            await speak(session.send_audio)
            await log.type("audio_interrupted")
            await agent_end()
            await agent_end()
            errors = [e for e in log.seen if e.type == "error"] + raw("error", 0) + raw("exception", 0)
            assert not errors, errors[0]
            assert [d for d in raw("raw_server_event", at) if d.data.get("type") == "conversation.item.truncated"]
            return "audio_interrupted, truncated, answered anew"

        reading = asyncio.create_task(read())
        await report({f.__name__: f for f in (text_turn, spoken_turn, tool_call, barge_in)})
        reading.cancel()


asyncio.run(main())
