"""pipecat as a peer, raw PCM over a WebSocket: python pipecat_bot.py PORT BACKENDS_URL SILENCE_S (in the peers' environment)"""

import asyncio
import sys

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.transports.websocket.server import SingleClientWebsocketServerParams, SingleClientWebsocketServerTransport
from pipecat.turns.user_stop.speech_timeout_user_turn_stop_strategy import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner


class RawPcm(FrameSerializer):
    """16 kHz in, 24 kHz out, s16le, nothing around it."""

    async def serialize(self, frame):
        return frame.audio if isinstance(frame, OutputAudioRawFrame) else None

    async def deserialize(self, data):
        return InputAudioRawFrame(audio=data, sample_rate=16_000, num_channels=1)


async def main(port: int, url: str, silence_s: float) -> None:
    account = {"api_key": "none", "base_url": url}
    params = SingleClientWebsocketServerParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_in_sample_rate=16_000,
        audio_out_sample_rate=24_000,
        serializer=RawPcm(),
    )
    transport = SingleClientWebsocketServerTransport(host="127.0.0.1", port=port, params=params)
    ears = OpenAISTTService(**account, settings=OpenAISTTService.Settings(model="stub"))
    mind = OpenAILLMService(**account, settings=OpenAILLMService.Settings(model="stub"))
    voice = OpenAITTSService(**account, settings=OpenAITTSService.Settings(model="stub", voice="alloy"))
    # The fastest rule it has: the turn is over when the voice detector says so.
    stop = SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0)
    user, assistant = LLMContextAggregatorPair(
        LLMContext([{"role": "system", "content": "be brief"}]),
        user_params=LLMUserAggregatorParams(
            vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=silence_s)),
            user_turn_strategies=UserTurnStrategies(stop=[stop]),
        ),
    )
    pipeline = Pipeline([transport.input(), ears, user, mind, voice, transport.output(), assistant])
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=16_000, audio_out_sample_rate=24_000))
    runner = WorkerRunner()
    await runner.add_workers(worker)
    await runner.run()


asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
