"""The page in a browser, on stub models: everything a person can do with it, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from tests.clients import serving
from tests.web.browser import loud_spans, page, say
from tests.web.conftest import STUB

pytestmark = pytest.mark.real

TRANSPORTS = ("webrtc", "websocket")
FIRST_LOAD = 200_000
"""Bytes of everything that the first look at the page fetches."""


def voice(seconds: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(int(48_000 * seconds)) / 48_000)).astype(np.float32)


async def opened(p: Any, port: int, **settings: str) -> None:
    await p.goto(f"http://127.0.0.1:{port}/")
    await p.evaluate("document.getElementById('settings-card').open = true")
    for name, value in settings.items():
        if name == "transport":
            await p.check(f"[name=transport][value={value}]")
        elif value in ("on", "off"):
            await p.set_checked(f"[name={name}]", value == "on")
        else:
            field = p.locator(f"[name={name}]")
            if await field.evaluate("field => field.tagName") == "SELECT":
                await field.select_option(value)
            else:
                await field.fill(value)


async def live(p: Any, status: str = "Go ahead") -> None:
    await p.click("#talk")
    await p.locator("body[data-state=live]").wait_for(timeout=20_000)
    assert status in await p.inner_text("#status")


async def until(p: Any, truth: str, within: float = 30.0) -> None:
    """Until an expression is true in the page. (The page's own policy forbids what playwright would do.)"""
    async with asyncio.timeout(within):
        while not await p.evaluate(truth):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def logged(p: Any, kind: str) -> list[dict[str, Any]]:
    """The events of a type in the page's own log, whole."""
    rows = await p.evaluate("[...document.querySelectorAll('#log li')].map(row => row.title)")
    found = []
    for row in rows:
        if f'"type":"{kind}"' in row[:60] or f'"type":"{kind}"' in row:
            try:
                found.append(json.loads(row))
            except ValueError:
                continue
    return [event for event in found if event["type"] == kind]


async def open_sessions(port: int) -> int:
    async with httpx.AsyncClient() as http:
        listed = (await http.get(f"http://127.0.0.1:{port}/v1/realtime/sessions")).json()["data"]
    return sum(session["closed_at"] is None for session in listed)


@pytest.mark.parametrize("transport", ["webrtc", pytest.param("websocket", marks=pytest.mark.slow)])
async def test_a_talk_with_an_interruption(stub: int, transport: str) -> None:
    async with page() as p:
        await opened(p, stub, transport=transport)
        await p.click("#talk")
        for text in ("First this.", "No, rather this."):  # before it is connected, and before anything is answered
            await p.evaluate("text => document.getElementById('composer-text').value = text", text)
            await p.evaluate("document.getElementById('composer').requestSubmit()")
        await p.locator(".utterance.user", has_text="rather").wait_for()
        await p.locator(".turn-head").wait_for()
        await p.click("#hang-up")
        await live(p)
        await say(p, voice(1.0))
        await p.locator(".utterance.user", has_text="Do you like dogs or cats?").wait_for()
        await p.locator(".utterance.agent .coming").wait_for()  # words that are still to be spoken
        await until(p, "window.heard.filter(([, level]) => level > 0.05).length > 60")
        await say(p, voice(0.6))
        cut = p.locator(".utterance.agent s").first
        await cut.wait_for()
        assert len(await cut.inner_text()) > 20
        await p.locator(".turn-head", has_text="Interrupted").wait_for()
        assert bool(await logged(p, "output_audio_buffer.cleared")) == (transport == "webrtc")
        assert await p.locator(".bars").first.get_attribute("aria-label")
        retrieved = (await logged(p, "conversation.item.retrieved"))[0]
        heard = retrieved["item"]["content"][0]["transcript"]
        first = p.locator(".utterance.agent div").first
        whole = await first.evaluate("row => [...row.childNodes].filter(n => !n.className).map(n => n.textContent).join('')")
        assert whole.startswith(heard) and len(whole) > len(heard)
        await p.click("#hang-up")
        await p.locator("body[data-state=idle]").wait_for()
        for _ in range(100):
            if not await open_sessions(stub):
                break
            await asyncio.sleep(0.1)
        assert not await open_sessions(stub)
        spans = list(loud_spans(await p.evaluate("window.heard")))
        assert spans and not p.problems


async def test_it_asks_no_other_host_and_is_small(stub: int) -> None:
    async with page() as p:
        sizes: list[int] = []

        async def count(response: Any) -> None:
            sizes.append(len(await response.body()))

        p.on("response", count)
        await p.goto(f"http://127.0.0.1:{stub}/")
        await p.wait_for_load_state("networkidle")
        assert all(url.startswith(f"http://127.0.0.1:{stub}/") for url in p.asked), p.asked
        assert 20_000 < sum(sizes) < FIRST_LOAD
        assert not p.problems


async def test_push_to_talk_by_the_space_bar(stub: int) -> None:
    async with page() as p:
        await opened(p, stub, transport="websocket", mode="push")
        await live(p, "Hold the button")
        assert await p.evaluate("document.activeElement.id") == "hold"  # on Talk the space bar would hang up
        await say(p, voice(1.0))  # nobody holds the button: not a word goes out
        await p.wait_for_timeout(800)
        assert not await p.locator(".utterance").count()
        await p.keyboard.down("Space")
        await say(p, voice(0.8))
        await p.wait_for_timeout(1000)
        await p.keyboard.up("Space")
        await p.locator(".utterance.user").wait_for()
        await p.locator(".utterance.agent", has_text="I like dogs").wait_for()
        assert await p.is_disabled("[name=transport][value=webrtc]")  # not in the middle of a call
        await p.locator("#hold").focus()
        await p.keyboard.press("Enter")
        await p.locator(".notice", has_text="That was short").wait_for()
        await p.evaluate("document.activeElement.blur()")
        await p.keyboard.press("Escape")
        await p.locator("body[data-state=idle]").wait_for()


@pytest.mark.parametrize("transport", ["webrtc", pytest.param("websocket", marks=pytest.mark.slow)])
async def test_impatience_harms_nothing(stub: int, transport: str) -> None:
    """Double clicks, hanging up while it connects, a stammering space bar, a window that is left while the bar is down."""
    async with page() as p:
        await p.goto(f"http://127.0.0.1:{stub}/")
        await p.evaluate("""localStorage.setItem("antiphon.settings", '{"mode": "nonsense", "silence": null}')""")
        await p.reload()
        assert await p.input_value("#mode") == "server_vad"
        await opened(p, stub, transport=transport, mode="push")
        await p.dblclick("#talk")
        await p.locator("body[data-state=live]").wait_for()
        await p.evaluate("for (let n = 0; n < 6; n++) document.getElementById('talk').click()")
        await p.locator("body[data-state=live]").wait_for()
        assert "Hold the button" in await p.inner_text("#status") and not await p.inner_text("#notices")
        async with asyncio.timeout(15):
            while await open_sessions(stub) != 1:  # noqa: ASYNC110 - the others are just being hung up
                await asyncio.sleep(0.1)
        for _ in range(5):
            await p.keyboard.down("Space")
            await p.wait_for_timeout(40)
            await p.keyboard.up("Space")
        await p.keyboard.down("Space")
        await p.wait_for_timeout(300)
        await p.evaluate("dispatchEvent(new Event('blur'))")
        await p.wait_for_timeout(300)
        assert not await p.get_attribute("#hold", "class") and "Hold the button" in await p.inner_text("#status")
        await p.keyboard.up("Space")
        for wait in (0, 30, 100, 300):
            await p.keyboard.press("Escape")
            await p.evaluate("document.getElementById('hang-up').click(); document.getElementById('talk').click()")
            await p.wait_for_timeout(wait)
            await p.evaluate("document.getElementById('hang-up').click()")
        assert await p.inner_text("#status") == "The call has ended. Press to talk again."
        async with asyncio.timeout(15):
            while await open_sessions(stub):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert not p.problems


@pytest.mark.parametrize("transport", ["websocket", pytest.param("webrtc", marks=pytest.mark.slow)])
async def test_settings_take_effect_and_writing_works_without_a_microphone(stub: int, transport: str) -> None:
    async with page() as p:
        await opened(p, stub, transport=transport, mode="semantic_vad", eagerness="high", language="de", voice="stub")
        await p.fill("#instructions", "Answer like a pirate.")
        await p.fill("#composer-text", "Good evening")
        await p.press("#composer-text", "Enter")
        await p.locator(".utterance.agent", has_text="I like dogs").wait_for()
        assert await p.locator(".utterance.user").inner_text() == "You\nGood evening"
        session = (await logged(p, "session.updated"))[0]["session"]
        assert session["instructions"] == "Answer like a pirate."
        assert session["audio"]["input"]["turn_detection"]["eagerness"] == "high"
        assert session["audio"]["input"]["transcription"]["language"] == "de"
        assert session["audio"]["output"]["voice"] == "stub"
        await p.reload()
        assert await p.input_value("#instructions") == "Answer like a pirate."


async def test_downloads_after_consent_the_log_and_mute(stub: int) -> None:
    async with page(permissions=["clipboard-read", "clipboard-write"]) as p:
        await opened(p, stub, transport="websocket")
        await live(p)
        await say(p, voice(0.3))
        await p.wait_for_timeout(500)
        await p.click("#talk")
        assert await p.is_disabled("#save-wav")  # nothing is kept without consent
        await p.check("[name=record]")
        await live(p)
        await p.click("#mute")
        assert await p.get_attribute("#mute", "aria-pressed") == "true"
        assert "muted" in await p.inner_text("#status")
        await say(p, voice(0.8))
        await p.wait_for_timeout(1200)
        assert not await p.locator(".utterance").count()
        await p.click("#mute")
        await say(p, voice(1.0))
        await until(p, "window.heard.filter(([, level]) => level > 0.05).length > 60")
        await p.click("#talk")
        async with p.expect_download() as waiting:
            await p.click("#save-wav")
        file = await (await waiting.value).path()
        sound, rate = soundfile.read(file)
        assert rate == 24_000 and sound.shape[1] == 2
        user, agent = (np.abs(sound[:, side]) > 0.05 for side in (0, 1))
        assert user.sum() > 0.5 * rate and agent.sum() > 0.2 * rate
        assert np.flatnonzero(user)[0] < np.flatnonzero(agent)[0]
        async with p.expect_download() as waiting:
            await p.click("#save-json")
        with open(await (await waiting.value).path(), encoding="utf-8") as saved:  # noqa: ASYNC230
            told = json.load(saved)
        assert {item["role"] for item in told["items"]} == {"user", "agent"}
        await p.evaluate("document.getElementById('log-card').open = true")
        await p.click("#copy-log")
        copied = await p.evaluate("navigator.clipboard.readText()")
        assert '"type":"session.update"' in copied and "input_audio_buffer.speech_started" in copied


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("NotAllowedError", "not allowed"),
        pytest.param("NotFoundError", "No microphone", marks=pytest.mark.slow),
        pytest.param("NotReadableError", "in use", marks=pytest.mark.slow),
    ],
)
async def test_no_microphone_is_said_plainly_and_writing_goes_on(stub: int, name: str, title: str) -> None:
    refuse = f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('no', '{name}'));"
    async with page(script=refuse) as p:
        await opened(p, stub, transport="websocket")
        await live(p, "Write below")
        assert title in await p.inner_text("#notices")
        assert await p.is_disabled("#mute")
        for text in ("Hello", "Hello again"):
            await p.fill("#composer-text", text)
            await p.press("#composer-text", "Enter")
            await p.locator(".utterance.agent", has_text="I like dogs").wait_for()
            # A new call knows nothing of the last one, and the page does not pretend it did.
            assert await p.locator(".utterance.user").all_inner_texts() == [f"You\n{text}"]
            await p.click("#hang-up")


async def test_an_address_that_is_not_secure(stub: int) -> None:
    async with page(flags=["--host-resolver-rules=MAP talk.test 127.0.0.1"]) as p:
        await p.goto(f"http://talk.test:{stub}/")
        await p.evaluate("document.getElementById('settings-card').open = true")
        await p.check("[name=transport][value=websocket]")
        await p.click("#talk")
        await p.locator(".notice", has_text="not secure").wait_for()


@pytest.mark.slow
async def test_a_full_server_and_a_warming_one() -> None:
    with serving.server([*STUB, "0", "12", "1"]) as port:
        async with page() as p:
            await opened(p, port, transport="websocket")
            await p.click("#talk")
            await until(p, "document.getElementById('status').textContent.includes('warming up')")
            await p.locator("body[data-state=live]").wait_for(timeout=30_000)
            async with page() as other:
                for transport in TRANSPORTS:
                    await opened(other, port, transport=transport)
                    await other.click("#talk")
                    await other.locator(".notice", has_text="The server is full").wait_for()
                    await other.locator("body[data-state=idle]").wait_for()


@pytest.mark.slow
async def test_a_lost_connection_comes_back_with_what_was_said() -> None:
    async with page() as p:
        with serving.server([*STUB, "0"]) as port:
            await opened(p, port, transport="websocket")
            await live(p)
            await p.fill("#composer-text", "Remember me")
            await p.press("#composer-text", "Enter")
            await p.locator(".utterance.agent", has_text="I like dogs").wait_for()
            await p.locator(".turn-head").wait_for()
        await p.locator(".notice", has_text="The connection was lost").wait_for()
        with serving.server([*STUB, str(port)]):
            await p.locator("body[data-state=live]").wait_for(timeout=30_000)
            past = [e for e in await logged(p, "conversation.item.create") if e["item"].get("id", "").startswith("past_")]
            assert past[0]["item"]["content"][0]["text"] == "Remember me" and len(past) == 2
            assert await p.locator(".utterance").count() == 2  # nothing twice
        await p.locator("body[data-state=idle]").wait_for(timeout=40_000)
        assert "cannot be reached" in await p.inner_text("#notices")


async def test_a_tool_call_changes_the_page(stub: int) -> None:
    """The stub calls no tools: the page is told of a call as the server would tell it."""
    async with page() as p:
        await p.goto(f"http://127.0.0.1:{stub}/")
        done = await p.evaluate("import('./js/tools.js').then(({ run }) => run('set_page_colour', '{\"colour\": \"blue\"}'))")
        assert done == "The page is blue now." and await p.get_attribute("html", "data-colour") == "blue"
        wrong = "import('./js/tools.js').then(({ run }) => [run('set_page_colour', '{'), run('x', '{}')])"
        assert [("not JSON" in t, "There is no" in t) for t in await p.evaluate(wrong)] == [(True, False), (False, True)]


async def test_axe_finds_nothing(stub: int, axe: Path) -> None:
    async with page(bypass_csp=True) as p:
        await opened(p, stub, transport="websocket")
        await p.add_script_tag(path=axe)
        await live(p)
        await say(p, voice(0.8))
        await p.locator(".turn-head").wait_for()
        await p.evaluate("document.getElementById('log-card').open = true")
        looks: list[tuple[Any, int]] = [("light", 1360), ("dark", 390)]
        for scheme, width in looks:
            await p.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await p.set_viewport_size({"width": width, "height": 860})
            found = await p.evaluate("axe.run()")
            told = [(v["id"], [n["html"][:160] for n in v["nodes"]][:4]) for v in found["violations"]]
            assert not told, (scheme, width)
            assert await p.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out sideways
