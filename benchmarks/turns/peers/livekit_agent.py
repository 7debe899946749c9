"""livekit-agents as a peer, without a LiveKit server: python livekit_agent.py PORT BACKENDS_URL SILENCE_S

Runs in the peers' environment.
"""

import asyncio
import sys
import time

import websockets
from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.utils import aio, http_context
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.plugins import openai, silero


class SocketInput(AudioInput):
    def __init__(self):
        super().__init__(label="socket")
        self.frames = aio.Chan()

    async def __anext__(self):
        return await self.frames.__anext__()


class SocketOutput(AudioOutput):
    """Sends frames as they come and plays them in real time as far as the agent is told."""

    def __init__(self, socket):
        super().__init__(label="socket", sample_rate=24_000, capabilities=AudioOutputCapabilities(pause=False))
        self.socket = socket
        self.began = None
        self.played_s = 0.0
        self.timer = None

    async def capture_frame(self, frame):
        await super().capture_frame(frame)
        if self.began is None:
            self.began = time.time()
            self.on_playback_started(created_at=self.began)
        self.played_s += frame.duration
        await self.socket.send(bytes(frame.data))

    def _finish(self, position, interrupted):
        if self.timer is not None:
            self.timer.cancel()
        self.began, self.played_s, self.timer = None, 0.0, None
        self.on_playback_finished(playback_position=position, interrupted=interrupted, synchronized_transcript=None)

    def flush(self):
        super().flush()
        if self.began is not None:
            left = max(0.0, self.began + self.played_s - time.time())
            self.timer = asyncio.get_running_loop().call_later(left, self._finish, self.played_s, False)

    def clear_buffer(self):
        if self.began is not None:
            self._finish(min(self.played_s, time.time() - self.began), True)


async def main(port, url, silence_s):
    detector = silero.VAD.load(min_silence_duration=silence_s)
    account = {"base_url": url, "api_key": "none"}

    async def converse(socket):
        async with http_context.open():
            session = AgentSession(
                vad=detector,
                stt=openai.STT(model="whisper-1", **account),
                llm=openai.LLM(model="gpt-4o-mini", **account),
                tts=openai.TTS(response_format="pcm", **account),
                turn_handling={"turn_detection": "vad", "endpointing": {"min_delay": 0.0, "max_delay": 3.0}},
            )
            source = SocketInput()
            session.input.audio, session.output.audio = source, SocketOutput(socket)
            await session.start(Agent(instructions="be brief"))
            try:
                async for data in socket:
                    frame = rtc.AudioFrame(data=data, sample_rate=16_000, num_channels=1, samples_per_channel=len(data) // 2)
                    source.frames.send_nowait(frame)
            finally:
                await session.aclose()

    async with websockets.serve(converse, "127.0.0.1", port, max_size=None):
        await asyncio.Future()


asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
