"""pipecat's OpenAIRealtimeLLMService in a pipeline of its own, without a transport."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from common import KEY, STORY, URL, Log, report, speak
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    FunctionCallResultFrame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMUpdateSettingsFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

logger.remove()
logger.add(sys.stderr, level="ERROR")
called: list[Any] = []


class Tap(FrameProcessor):
    """Sees every frame that passes here, upstream and down."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self._log.push(frame)
        await self.push_frame(frame, direction)


async def main() -> None:
    log = Log()
    audio = events.AudioConfiguration(
        input=events.AudioInput(
            transcription=events.InputAudioTranscription(model="whisper-1"), turn_detection=events.SemanticTurnDetection()
        )
    )
    properties = events.SessionProperties(
        instructions="Answer in one short sentence.", audio=audio, output_modalities=["audio"], tool_choice="none"
    )
    llm = OpenAIRealtimeLLMService(
        api_key=KEY,
        base_url=URL,
        settings=OpenAIRealtimeLLMService.Settings(model="gpt-realtime", session_properties=properties),
    )

    async def choose(tool_choice: Any) -> None:
        """The whole of the session's properties is replaced by what is given, so all of it is given."""
        changed = properties.model_copy(update={"tool_choice": tool_choice})
        settings = OpenAIRealtimeLLMService.Settings(session_properties=changed)
        await worker.queue_frame(LLMUpdateSettingsFrame(delta=settings))

    async def get_weather(params: Any) -> None:
        called.append(params.arguments)
        await choose("none")
        await asyncio.sleep(0.2)
        await params.result_callback({"sky": "rain"})

    weather = FunctionSchema("get_weather", "The weather in a city.", {"city": {"type": "string"}}, ["city"])
    llm.register_function("get_weather", get_weather)
    context = LLMContext([{"role": "user", "content": "Say hello."}], ToolsSchema(standard_tools=[weather]))
    user, assistant = LLMContextAggregatorPair(context)
    before = Tap(log)
    worker = PipelineWorker(
        Pipeline([user, before, llm, Tap(log), assistant]),
        params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000),
        cancel_on_idle_timeout=False,
    )

    async def append(pcm: bytes) -> None:
        await worker.queue_frame(InputAudioRawFrame(audio=pcm, sample_rate=24_000, num_channels=1))

    async def say(text: str) -> None:
        """Behind the user's aggregator, which would keep it to itself; the assistant's asks for the answer."""
        messages: Any = [{"role": "user", "content": text}]
        await before.push_frame(LLMMessagesAppendFrame(messages=messages, run_llm=True))

    async def answer() -> str:
        """The words of the next answer, once it has ended and was heard to sound."""
        await log.next(lambda f: isinstance(f, LLMFullResponseStartFrame))
        start = log.at
        await log.next(lambda f: isinstance(f, TTSAudioRawFrame))
        await log.next(lambda f: isinstance(f, LLMFullResponseEndFrame))
        return "".join(f.text for f in log.seen[start : log.at] if isinstance(f, TTSTextFrame))

    async def text_turn() -> str:
        await worker.queue_frame(LLMRunFrame())
        said = await answer()
        assert said.strip()
        return said

    async def spoken_turn() -> str:
        await speak(append)
        await answer()
        heard = [f.text for f in log.seen if isinstance(f, TranscriptionFrame)]
        assert heard and heard[-1].strip()
        return str(heard[-1])

    async def tool_call() -> str:
        await choose("required")
        await asyncio.sleep(0.5)
        await say("What is the weather in Oslo?")
        await log.next(lambda f: isinstance(f, FunctionCallResultFrame))
        said = await answer()
        assert len(called) == 1 and called[0]["city"], called
        return f"{called[0]} -> {said}"

    async def barge_in() -> str:
        await say(STORY)
        await log.next(lambda f: isinstance(f, TTSAudioRawFrame))
        speaking = asyncio.create_task(speak(append))
        await log.next(lambda f: isinstance(f, InterruptionFrame))
        await speaking
        await answer()
        errors = [f for f in log.seen if isinstance(f, ErrorFrame)]
        assert not errors, errors[0].error
        return "interrupted, answered anew"

    runner = WorkerRunner()
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(1.0)
    await report({f.__name__: f for f in (text_turn, spoken_turn, tool_call, barge_in)})
    running.cancel()


asyncio.run(main())
