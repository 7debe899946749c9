"""Pictures of the page in every state worth looking at: ``make screenshots`` writes them to .cache/screenshots.

The server is the real CPU voice where a recording is at hand; the faults are played on stubs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from tests.clients import serving
from tests.web.browser import page, say
from tests.web.test_page import live, opened, until, voice

OUT = Path(__file__).parent.parent.parent / ".cache" / "screenshots"
STUB = [sys.executable, "-m", "tests.web.stub_page", "0"]
WIDE, PHONE = {"width": 1360, "height": 820}, {"width": 390, "height": 844}
LOUD = "window.heard.filter(([, level]) => level > 0.02).length"


async def shoot(p: Any, name: str) -> None:
    await p.evaluate("document.getElementById('settings-card').open = false")
    await p.evaluate("scrollTo(0, 0)")
    await p.wait_for_timeout(300)
    await p.screenshot(path=OUT / f"{name}.png")
    print(OUT / f"{name}.png", flush=True)


@contextlib.asynccontextmanager
async def looking(port: int, size: Any, scheme: Any, **settings: str) -> AsyncIterator[Any]:
    async with page(viewport=size, color_scheme=scheme) as p:
        p.set_default_timeout(120_000)
        await opened(p, port, **settings)
        yield p


async def talk(port: int, question: np.ndarray, name: str, size: Any, scheme: Any, transport: str) -> None:
    """Start, listening, talking, interrupted."""
    async with looking(port, size, scheme, transport=transport) as p:
        await shoot(p, f"{name}-start")
        await live(p)
        await p.evaluate("document.activeElement.blur()")
        await say(p, question)
        await p.wait_for_timeout(900)
        await shoot(p, f"{name}-listening")
        await until(p, f"{LOUD} > 40", 120)
        await p.wait_for_timeout(2500)
        await p.fill("#composer-text", "Tell me a long story about a lighthouse keeper and his dog.")
        await p.press("#composer-text", "Enter")
        await p.evaluate("document.activeElement.blur(); window.heard.length = 0")
        await until(p, f"{LOUD} > 200", 120)
        await shoot(p, f"{name}-talking")
        await say(p, question)
        await p.locator(".turn-head", has_text="Interrupted").wait_for()
        count = await p.evaluate(LOUD)
        await until(p, f"{LOUD} > {count + 25}", 120)
        await shoot(p, f"{name}-interrupted")


async def faults(port: int) -> None:
    refuse = "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('no', 'NotAllowedError'));"
    async with page(script=refuse, viewport=WIDE) as p:
        await opened(p, port, transport="websocket")
        await live(p, "Write below")
        await shoot(p, "fault-microphone")
    async with looking(port, WIDE, "light", transport="websocket", mode="push") as p:
        await live(p, "Hold")
        await p.evaluate("for (const id of ['log-card', 'settings-card']) document.getElementById(id).open = true")
        await p.screenshot(path=OUT / "settings-and-log.png", full_page=True)
    with serving.server([*STUB, "15", "1"]) as other:
        async with looking(other, PHONE, "dark", transport="websocket") as p:
            await p.click("#talk")
            await until(p, "document.getElementById('status').textContent.includes('warming up')")
            await shoot(p, "fault-warming-phone")
            await p.locator("body[data-state=live]").wait_for()
            async with looking(other, PHONE, "light", transport="websocket") as second:
                await second.click("#talk")
                await second.locator(".notice").wait_for()
                await shoot(second, "fault-full-phone")


async def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    recorded = serving.SHARED / "audio" / "dog-or-cat.mp3"
    question, command = voice(1.2), STUB
    if recorded.exists():
        samples, rate = soundfile.read(recorded, dtype="float32", always_2d=True)
        question, command = soxr.resample(samples.mean(1), rate, 48_000), serving.REAL
    with serving.server(command) as port:
        await talk(port, question, "light", WIDE, "light", "webrtc")
        await talk(port, question, "dark", WIDE, "dark", "websocket")
        await talk(port, question, "phone", PHONE, "light", "webrtc")
    with serving.server(STUB) as port:
        await faults(port)


if __name__ == "__main__":
    asyncio.run(main())
