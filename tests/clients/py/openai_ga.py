"""openai-python, GA."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from common import HTTP_URL, KEY, STORY, WEATHER, Log, report, speak
from openai import AsyncOpenAI


def item(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def main() -> None:
    log = Log()
    client = AsyncOpenAI(api_key=KEY, base_url=HTTP_URL)
    async with client.realtime.connect(model="gpt-realtime") as rt:

        async def read() -> None:
            async for event in rt:
                log.push(event)

        async def append(pcm: bytes) -> None:
            await rt.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())

        async def text_turn() -> str:
            await log.type("session.created")
            session: Any = {"type": "realtime", "output_modalities": ["text"], "instructions": "Answer in one sentence."}
            await rt.session.update(session=session)
            await log.type("session.updated")
            await rt.conversation.item.create(item=item("Say hello."))
            await rt.response.create()
            done = await log.type("response.output_text.done")
            assert done.text.strip()
            assert (await log.type("response.done")).response.status == "completed"
            return str(done.text)

        async def spoken_turn() -> str:
            audio = {"input": {"transcription": {"model": "whisper-1"}}}
            session: Any = {
                "type": "realtime", "output_modalities": ["audio"], "max_output_tokens": 24, "audio": audio,
            }  # fmt: skip
            await rt.session.update(session=session)
            await log.type("session.updated")
            await speak(append)
            await log.type("input_audio_buffer.speech_started")
            await log.type("response.output_audio.delta")
            await log.type("response.done")
            heard = [e for e in log.seen if e.type.endswith("transcription.completed")]
            assert heard and heard[-1].transcript
            return str(heard[-1].transcript)

        async def tool_call() -> str:
            tools: Any = {"type": "realtime", "output_modalities": ["text"], "tools": [WEATHER]}
            await rt.session.update(session=tools)
            await log.type("session.updated")
            await rt.conversation.item.create(item=item("What is the weather in Oslo?"))
            choice: Any = {"tool_choice": {"type": "function", "name": "get_weather"}}
            await rt.response.create(response=choice)
            call = await log.type("response.function_call_arguments.done")
            assert json.loads(call.arguments)["city"]
            await log.type("response.done")
            answer: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
            await rt.conversation.item.create(item=answer)
            await rt.response.create(response={"tool_choice": "none"})
            text = (await log.type("response.output_text.done")).text
            await log.type("response.done")
            return f"{call.arguments} -> {text}"

        async def barge_in() -> str:
            session: Any = {"type": "realtime", "output_modalities": ["audio"], "max_output_tokens": "inf", "tools": []}
            await rt.session.update(session=session)
            await log.type("session.updated")
            await rt.conversation.item.create(item=item(STORY))
            await rt.response.create()
            first = await log.type("response.output_audio.delta")
            await speak(append)
            await log.type("input_audio_buffer.speech_started")
            at = log.at
            await rt.conversation.item.truncate(item_id=first.item_id, content_index=0, audio_end_ms=300)
            await log.type("conversation.item.truncated")
            log.at = at  # the new answer may have begun before that
            await log.next(lambda e: e.type.endswith("audio.delta") and e.response_id != first.response_id)
            stale = [e for e in log.seen[at:] if e.type.endswith("audio.delta") and e.response_id == first.response_id]
            assert not stale, len(stale)
            assert not [e for e in log.seen if e.type == "error"], [e for e in log.seen if e.type == "error"]
            return "cut, and answered anew"

        reading = asyncio.create_task(read())
        await report({f.__name__: f for f in (text_turn, spoken_turn, tool_call, barge_in)})
        reading.cancel()


asyncio.run(main())
