"""A conversation with the tiny model over the realtime door: interruptions, early answers, pictures, history."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.requests import AudioPart, GenerateRequest, TextPart
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime import doors
from antiphon.session.features import Features
from tests.qwen3_omni.cases import HELLO, IMAGE, SYSTEM, png
from tests.qwen3_omni.noting import Noting
from tests.qwen3_omni.oracle import Answer, Oracle
from tests.qwen3_omni.test_media import huge_png
from tests.realtime.conversing import Running, Talk, audio_of, hush, serving, talking, voice
from tests.realtime.rest.conftest import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Expected = Callable[[str], Answer]

FASTEST_SPEECH = 20
"""Characters a second: nobody has heard more than that."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(folder: str) -> AsyncIterator[Running]:
    async with serving(Noting(LocalRuntime(build(folder)))) as running:
        yield running


@asynccontextmanager
async def conversation(running: Running, **session: Any) -> AsyncIterator[tuple[Talk, Noting]]:
    client = running.client
    assert isinstance(client, Noting)
    client.asked.clear()
    async with talking(running) as talk:
        await talk.say_hello(**{"instructions": SYSTEM, **session})
        yield talk, client


def said_before(request: GenerateRequest) -> list[str]:
    """The assistant's turns of a request, as text."""
    turns = [m for m in request.messages if m.role == "assistant"]
    return ["".join(p.text if isinstance(p, TextPart) else getattr(p, "transcript", "") or "" for p in m.parts) for m in turns]


async def test_an_interrupted_answer_is_kept_as_far_as_it_was_heard(running: Running) -> None:
    async with conversation(running) as (talk, client):
        await talk.ask(HELLO)
        await talk.until("response.output_audio.delta", within=30)
        while len(audio_of(talk.events)) < 2 * 48_000:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await talk.speak(voice(0.6))
        await talk.until("input_audio_buffer.speech_started")
        at = talk.types().index("input_audio_buffer.speech_started")
        done = await talk.until("response.done", within=30)
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        (item,) = done["response"]["output"]
        whole = item["content"][0]["transcript"]
        await talk.send("conversation.item.truncate", item_id=item["id"], content_index=0, audio_end_ms=1000)
        await talk.until("conversation.item.truncated", audio_end_ms=1000)
        await talk.speak(hush(0.8))
        await talk.until("response.done", within=60)
        old = [e for e in talk.events[at:] if e.get("response_id") == done["response"]["id"]]
        assert not audio_of(old)
        first, second = client.answers[0], client.answers[-1]
        await asyncio.wait_for(first[1].released(), 10)
        assert first[1].timeline["asked"] <= first[1].timeline["broadcast"] <= first[1].timeline["released"]
        (heard,) = said_before(second[0])
        assert whole.startswith(heard) and 0 < len(heard) <= FASTEST_SPEECH < len(whole)
        assert isinstance(second[0].messages[-1].parts[0], AudioPart)


async def test_an_early_answer_is_held_and_released_whole(running: Running) -> None:
    async with conversation(running, max_output_tokens=12) as (talk, client):
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.2))
        async with asyncio.timeout(30):
            while not client.answers or "first:audio" not in client.answers[0][1].timeline:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        request, generation = client.answers[0]
        assert request.listener == "early"
        assert not [t for t in talk.types() if t.startswith("response.")]
        assert "input_audio_buffer.speech_stopped" not in talk.types()
        await talk.speak(hush(0.5))
        done = await talk.until("response.done", within=30)
        assert client.answers == [(request, generation)], "what was made early is the answer"
        assert done["response"]["output"][0]["content"][0]["transcript"]
        frames = (len(audio_of(talk.events)) // 2 + 555) / 1920
        assert frames == int(frames) > 1


async def test_an_early_answer_is_withdrawn_when_the_user_goes_on(running: Running) -> None:
    async with conversation(running) as (talk, client):
        await talk.speak(voice(0.8))
        await talk.speak(hush(0.2))
        async with asyncio.timeout(10):
            while not client.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        early = client.answers[0][1]
        await talk.speak(voice(0.6))
        await asyncio.wait_for(early.released(), 10)
        assert not [t for t in talk.types() if t.startswith("response.")]
        await talk.speak(hush(0.8))
        created = await talk.until("response.created", within=30)
        await talk.until("response.output_audio.delta", within=30)
        asked = client.answers[-1][0]
        assert client.answers[-1][1] is not early
        (part,) = asked.messages[-1].parts
        assert isinstance(part, AudioPart)
        assert len(part.data) / 64_000 > 1.5, "one turn: both times the user spoke"
        await talk.send("response.cancel", response_id=created["response"]["id"])
        await talk.until("response.done", within=30)


async def test_a_picture_in_a_conversation_item(running: Running, expected: Expected, oracle: Oracle) -> None:
    answer = oracle.tok.decode(expected("image").tokens, skip_special_tokens=True)
    url = "data:image/png;base64," + base64.b64encode(IMAGE.data).decode()
    content = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What?"}]
    async with conversation(running, instructions="", output_modalities=["text"], max_output_tokens=30) as (talk, client):
        await talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await talk.send("response.create")
        await talk.until("response.output_text.done", within=30, text=answer)
        done = await talk.until("response.done")
        # 96 x 64 pixels are 6 places, by the family's arithmetic.
        assert done["response"]["usage"]["input_token_details"]["image_tokens"] == 6
        await talk.ask("And now?")
        again = await talk.until("response.done", within=30)
        assert again["response"]["usage"]["input_token_details"]["image_tokens"] == 6, "it is still in the history"
        assert said_before(client.answers[-1][0]) == [answer]


async def test_history_equals_the_same_turns_asked_at_once(running: Running, oracle: Oracle) -> None:
    """Three turns over the door; each answer is what generate() makes of the conversation so far."""
    turns: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    async with conversation(running, output_modalities=["text"], max_output_tokens=12) as (talk, _):
        for question in (HELLO, "What sound?", "Who are you?"):
            await talk.ask(question)
            text = (await talk.until("response.output_text.done", within=30))["text"]
            await talk.until("response.done")
            turns.append({"role": "user", "content": question})
            made = oracle.answer(oracle.text(turns), frames=2)
            assert text == oracle.tok.decode(made.tokens, skip_special_tokens=True)
            turns.append({"role": "assistant", "content": text})


async def test_a_broken_picture_fails_its_response_and_not_the_session(running: Running) -> None:
    url = "data:image/png;base64," + base64.b64encode(IMAGE.data[:100]).decode()
    content = [{"type": "input_image", "image_url": url}]
    async with conversation(running, output_modalities=["text"], max_output_tokens=4) as (talk, _):
        item = {"id": "broken", "type": "message", "role": "user", "content": content}
        await talk.send("conversation.item.create", item=item)
        await talk.send("response.create")
        done = await talk.until("response.done", within=30)
        assert done["response"]["status"] == "failed"
        error = done["response"]["status_details"]["error"]
        assert error["message"].startswith("item 'broken': is no readable image") and error["code"] == "invalid_media"
        beside = {"conversation": "none", "input": [{"type": "item_reference", "id": "broken"}]}
        given = {"conversation": "none", "input": [{"type": "message", "role": "user", "content": content}]}
        for response, name in ((beside, "item 'broken': "), (given, "response.input[0]: ")):
            await talk.send("response.create", response=response)
            done = await talk.until("response.done", within=30)
            assert done["response"]["status_details"]["error"]["message"].startswith(name)
        await talk.send("conversation.item.delete", item_id="broken")
        await talk.ask(HELLO)
        done = await talk.until("response.done", within=30)
        assert done["response"]["status"] in ("completed", "incomplete")


async def test_a_picture_that_is_none_is_refused_when_it_comes(running: Running) -> None:
    urls = ["data:image/png;base64," + base64.b64encode(data).decode() for data in (b"<svg/>", huge_png(30_000, 30_000))]
    async with conversation(running, output_modalities=["text"], max_output_tokens=4) as (talk, _):
        for url, words in zip(urls, ("no readable image", "the limit is 50000000"), strict=True):
            item = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}
            await talk.send("conversation.item.create", item=item, event_id="mine")
            error = (await talk.until("error"))["error"]
            assert words in error["message"]
            assert (error["param"], error["event_id"]) == ("item.content[0].image_url", "mine")
        assert "conversation.item.added" not in talk.types()
        await talk.ask(HELLO)
        done = await talk.until("response.done", within=30)
        assert done["response"]["status"] in ("completed", "incomplete")


async def test_the_oldest_pictures_leave_a_full_context(folder: str, tmp_path: Path) -> None:
    """1280 x 960 pixels are 1200 places of 32 x 32, and the tiny model's context has 4096."""
    large = shutil.copytree(folder, tmp_path / "large")
    held = json.loads((large / "preprocessor_config.json").read_text())
    (large / "preprocessor_config.json").write_text(
        json.dumps({**held, "size": {"shortest_edge": 3136, "longest_edge": 12845056}})
    )
    url = "data:image/png;base64," + base64.b64encode(png(Image.new("RGB", (1280, 960)))).decode()
    item = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}
    async with (
        serving(Noting(LocalRuntime(build(str(large))))) as running,
        conversation(running, output_modalities=["text"], max_output_tokens=2) as (talk, _),
    ):
        seen = []
        for _turn in range(5):
            await talk.send("conversation.item.create", item=item)
            await talk.send("response.create")
            done = await talk.until("response.done", within=60)
            assert done["response"]["status"] in ("completed", "incomplete"), done
            seen.append(done["response"]["usage"]["input_token_details"]["image_tokens"])
        assert seen[:2] == [1200, 2400] and all(tokens % 1200 == 0 for tokens in seen)


async def test_a_conversation_goes_on_past_many_spoken_turns(running: Running) -> None:
    silent = {"input": {"turn_detection": None}}
    async with conversation(running, output_modalities=["text"], max_output_tokens=2, audio=silent) as (talk, _):
        for _turn in range(20):
            await talk.speak(voice(0.2))
            await talk.send("input_audio_buffer.commit")
        await talk.send("response.create")
        done = await talk.until("response.done", within=60)
        assert done["response"]["status"] in ("completed", "incomplete"), done


async def test_the_next_turn_is_read_ahead(folder: str) -> None:
    """What stands before the user's words is in the cache when they come, whatever was asked before."""
    client = Noting(LocalRuntime(build(folder)))
    long = f"{SYSTEM} You can hear the sound and the voice in this audio, as soon as it is ready."
    async with serving(client, features=Features(prepare=True)) as running, talking(running) as talk:
        await talk.say_hello(instructions=long, max_output_tokens=4)
        await talk.speak(voice(0.8))
        # Who really speaks takes longer than to read it; here all comes at once, and the end must not overtake it.
        await until(lambda: any(r.kind == "prepare" and g.ended for r, g in client.asked), 30)
        await talk.speak(hush(0.8))
        done = await talk.until("response.done", within=30)
        assert done["response"]["usage"]["input_token_details"]["cached_tokens"] >= 32


async def test_what_the_doors_offer(folder: str) -> None:
    features = doors.allowed(Features(), build(folder).info)
    assert features.early and set(features.inputs) == {"text", "audio", "image"} and set(features.outputs) == {"audio", "text"}
