"""The page and its doors on stubs, in a process of its own: for screenshots and for work on the page.

python -m tests.web.stub_page [PORT [seconds of warming up [most sessions]]]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from antiphon.cli.serve import web_demo
from antiphon.realtime import sockets
from antiphon.realtime.app import create_app
from antiphon.realtime.limits import Limits
from antiphon.realtime.settings import Settings
from antiphon.session.features import Features
from tests.realtime.stubs import Script, StubClient, StubEar

ANSWER = (
    "I",
    " like",
    " dogs",
    " for",
    " their",
    " company",
    " and",
    " cats",
    " for",
    " their",
    " manners",
    ".",
    " If",
    " I",
    " had",
    " to",
    " choose",
    " one",
    " for",
    " a",
    " long",
    " walk",
    " by",
    " the",
    " sea",
    ",",
    " it",
    " would",
    " be",
    " a",
    " dog",
    ".",
)


class SlowToWarm(StubClient):
    """A stub whose models take a while to load."""

    def __init__(self, script: Script, warming_s: float) -> None:
        super().__init__(script)
        self._warming_s = warming_s

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        await asyncio.sleep(self._warming_s)


async def main(port: int, warming_s: float, sessions: int) -> None:
    script = Script(
        words=ANSWER,
        transcript="Do you like dogs or cats?",
        asr_s=0.12,
        first_token_s=0.06,
        token_s=0.02,
        first_audio_s=0.02,
        audio_s=9.0,
        realtime_factor=0.2,
    )
    settings = Settings(web_demo=web_demo(), limits=Limits(sessions=sessions))
    app = create_app(settings, lambda: SlowToWarm(script, warming_s), open_ear=StubEar, features=Features())
    config = sockets.config(app, host="127.0.0.1", port=port, log_level="warning")
    server = sockets.Server(config, app.state.doors.drain)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has a flag, no event
        await asyncio.sleep(0.01)
    print("ready", server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    given = [float(a) for a in sys.argv[1:4]]
    port, warming_s, sessions = given + [0.0, 0.0, 64.0][len(given) :]
    asyncio.run(main(int(port), warming_s, int(sessions)))
