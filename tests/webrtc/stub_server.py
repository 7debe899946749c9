"""A server on stubs in a process of its own, for calls: python -m tests.webrtc.stub_server PORT"""

from __future__ import annotations

import asyncio
import sys

from antiphon.session.features import Features
from tests.realtime.stubs import Script, StubClient
from tests.webrtc import calling


async def main(port: int) -> None:
    script = Script(asr_s=0.05, first_token_s=0.06, token_s=0.01, first_audio_s=0.08, audio_s=2.0, realtime_factor=0.2)
    async with calling.serving(StubClient(script), features=Features(), port=port) as running:
        print("ready", running.port, flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
