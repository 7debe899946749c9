"""livekit-plugins-openai's RealtimeModel, driven as an AgentSession drives it, without a LiveKit server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
from common import HTTP_URL, KEY, STORY, Log, report, speak
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai


@llm.function_tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return "rain"


async def take(generation: Any, *, until_audio: bool = False) -> dict[str, Any]:
    """Drain a generation's streams: text, seconds of audio, calls."""
    got: dict[str, Any] = {"text": "", "audio": 0.0, "calls": [], "id": None}

    async def messages() -> None:
        async for message in generation.message_stream:
            got["id"] = message.message_id

            async def text(message: Any = message) -> None:
                async for piece in message.text_stream:
                    got["text"] += str(piece)

            async def audio(message: Any = message) -> None:
                async for frame in message.audio_stream:
                    got["audio"] += frame.duration

            await asyncio.gather(text(), audio())

    async def calls() -> None:
        async for call in generation.function_stream:
            got["calls"].append(call)

    if until_audio:
        task = asyncio.gather(messages(), calls())
        while not got["audio"]:  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0.01)
        got["task"] = task
    else:
        await asyncio.gather(messages(), calls())
    return got


async def main() -> None:
    log, problems = Log(), []
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(base_url=HTTP_URL, api_key=KEY, model="gpt-realtime", http_session=http)
        session = model.session()
        for name in ("generation_created", "input_speech_started", "input_audio_transcription_completed"):
            session.on(name, lambda event: log.push(event))
        session.on("error", problems.append)
        await session.update_instructions("Answer in one short sentence.")

        async def say(text: str) -> None:
            context = session.chat_ctx.copy()
            context.add_message(role="user", content=text)
            await session.update_chat_ctx(context)

        async def append(pcm: bytes) -> None:
            session.push_audio(rtc.AudioFrame(pcm, 24_000, 1, len(pcm) // 2))

        def generation(event: Any) -> bool:
            return isinstance(event, llm.GenerationCreatedEvent)

        async def text_turn() -> str:
            await say("Say hello.")
            got = await take(await session.generate_reply())
            assert got["text"].strip() and got["audio"] > 0.1, got
            return str(got["text"])

        async def spoken_turn() -> str:
            log.at = len(log.seen)
            await speak(append)
            await log.next(lambda e: isinstance(e, llm.InputSpeechStartedEvent))
            got = await take(await log.next(generation))
            assert got["audio"] > 0.1, got
            heard = [e for e in log.seen if isinstance(e, llm.InputTranscriptionCompleted) and e.is_final]
            assert heard and heard[-1].transcript.strip()
            return str(heard[-1].transcript)

        async def tool_call() -> str:
            await session.update_tools([get_weather])
            await say("What is the weather in Oslo?")
            got = await take(await session.generate_reply(tool_choice="required"))
            (call,) = got["calls"]
            assert json.loads(call.arguments)["city"], call.arguments
            context = session.chat_ctx.copy()
            context.items.append(llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="rain", is_error=False))
            await session.update_chat_ctx(context)
            answer = await take(await session.generate_reply(tool_choice="none"))
            assert answer["text"].strip()
            return f"{call.arguments} -> {answer['text']}"

        async def barge_in() -> str:
            await session.update_tools([])
            await say(STORY)
            got = await take(await session.generate_reply(), until_audio=True)
            log.at = len(log.seen)
            speaking = asyncio.create_task(speak(append))
            await log.next(lambda e: isinstance(e, llm.InputSpeechStartedEvent))
            session.interrupt()  # as AgentSession does; too late is answered by an error that the client knows
            session.truncate(message_id=got["id"], modalities=["audio"], audio_end_ms=200)
            await got["task"]
            await speaking
            answer = await take(await log.next(generation))
            assert answer["audio"] > 0.1
            assert not problems, problems
            return "cut, truncated, answered anew"

        await report({f.__name__: f for f in (text_turn, spoken_turn, tool_call, barge_in)})


asyncio.run(main())
