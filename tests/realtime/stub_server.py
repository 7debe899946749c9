"""A server on stubs in a process of its own: to develop a client against, and for benchmarks of the doors alone.

python -m tests.realtime.stub_server PORT [token delays in ms: transcript first-token per-token first-audio]
"""

from __future__ import annotations

import asyncio
import sys

from antiphon.session.features import Features
from tests.realtime import conversing, stubs


async def main(port: int, delays: list[float]) -> None:
    asr, first, token, voice = (d / 1000 for d in (delays or [50, 60, 10, 80]))
    script = stubs.Script(asr_s=asr, first_token_s=first, token_s=token, first_audio_s=voice, audio_s=4.0, realtime_factor=0.2)
    async with conversing.serving(stubs.StubClient(script), features=Features(), port=port) as running:
        print("ready", running.port, flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), [float(a) for a in sys.argv[2:6]]))
