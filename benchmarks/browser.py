"""Voice-to-voice as a person in a browser has it: Chromium's own WebRTC beside the page's WebSocket, turn about, one server.

python -m benchmarks.browser [--turns N] [--real]

The page is the web demo; both ends of the measure are in it, on its clock: from the last voiced sample put into the microphone
to the first sound at the loudspeaker, by its level every 10 ms. Everything a browser adds is in it, on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.cli.demo import QUESTION
from antiphon.codecs.media import decode
from benchmarks.machine import machine, table
from benchmarks.turns.__main__ import REAL_SILENCE_MS, process, real_server
from benchmarks.turns.client import VOICED
from tests.clients.serving import server
from tests.web.browser import MICROPHONE_RATE, page, say
from tests.web.conftest import STUB
from tests.web.test_page import TRANSPORTS, live, opened

AUDIBLE = 0.02
WITHIN_S = 12.0


async def turn(p: Any, speech: NDArray[np.float32]) -> float | None:
    """Milliseconds; None: nothing was heard. Afterwards the answer is cut and everything is quiet."""
    last_voiced = int(np.flatnonzero(np.abs(speech) > VOICED)[-1])
    await p.evaluate("window.heard.length = 0")
    end = await say(p, speech) + 1000 * last_voiced / MICROPHONE_RATE
    first = f"window.heard.find(([at, level]) => at >= {end} && level > {AUDIBLE})?.[0] ?? null"
    heard = None
    for _ in range(int(WITHIN_S / 0.1)):
        await asyncio.sleep(0.1)
        if (heard := await p.evaluate(first)) is not None:
            break
    loud = f"window.heard.slice(-60).some(([, level]) => level > {AUDIBLE})"
    for _ in range(150):
        await asyncio.sleep(0.1)
        if not await p.evaluate(loud):
            break
    return None if heard is None else heard - end


async def beside(port: int, speech: NDArray[np.float32], silence_ms: int, turns: int) -> str:
    """A table of a row each; the first turn of each is not counted."""
    done: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    async with AsyncExitStack() as stack:
        pages = {}
        for name in TRANSPORTS:
            pages[name] = await stack.enter_async_context(page())
            await opened(pages[name], port, transport=name)
            await pages[name].evaluate(
                f"const range = document.getElementById('silence'); range.value = {silence_ms};"
                " range.dispatchEvent(new Event('change', {bubbles: true}))"
            )
            await live(pages[name])
        for n in range(turns + 1):
            for name, p in pages.items():
                heard = await turn(p, speech)
                if n and heard is not None:
                    done[name].append(heard)
    rows = []
    for name, values in done.items():
        ordered = sorted(values) or [float("nan")]
        more = statistics.median(ordered) - statistics.median(done["websocket"] or [float("nan")])
        spread = f"{ordered[0]:.0f}-{ordered[-1]:.0f}"
        rows.append([name, f"{statistics.median(ordered):.0f}", spread, len(values), f"{more:+.0f}"])
    return table(["Chromium over", "median ms", "min-max", "n", "beside WebSocket"], rows)


async def main(turns: int, real: bool) -> None:
    speech = decode(QUESTION.read_bytes(), MICROPHONE_RATE)
    print(machine())
    with server([*STUB, "0"]) as port:
        print("\non stubs, silence 500 ms")
        print(await beside(port, speech, 500, turns))
    if real:
        with process(real_server([]), "Antiphon is ready at") as url:
            print(f"\non the CPU voice, silence {REAL_SILENCE_MS} ms")
            print(await beside(int(url.rsplit(":", 1)[1]), speech, REAL_SILENCE_MS, turns))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--real", action="store_true", help="the CPU voice as well")
    options = parser.parse_args()
    asyncio.run(main(options.turns, options.real))
