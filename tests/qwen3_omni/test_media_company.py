"""What one request's media cost the others: no place, no thread, no memory past the common bound, and no name of theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from antiphon.pipelines.client import Client
from antiphon.pipelines.errors import Refused, StageFailed
from antiphon.pipelines.qwen3_omni.media import pictures, video
from antiphon.pipelines.qwen3_omni.media.fetch import Room
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.qwen3_omni.preprocessing import THREADS, Preprocessing
from antiphon.pipelines.requests import PCM_F32_16K, AudioPart, GenerateRequest, ImagePart, Message, Part, TextPart, VideoPart
from antiphon.pipelines.runtime import LocalRuntime
from tests.qwen3_omni import film
from tests.qwen3_omni.cases import IMAGE, tone

HERE = {"allow_private": True, "seconds": 60.0}


def request(*parts: Part, id: str = "r") -> GenerateRequest:
    return GenerateRequest(id=id, task="chat", terminals=("text",), messages=(Message("user", parts),))


@asynccontextmanager
async def files(**held: bytes | None) -> AsyncIterator[tuple[str, asyncio.Queue[str]]]:
    """A web server with these files, and what it was asked for. One that is None never comes."""
    asked: asyncio.Queue[str] = asyncio.Queue()
    waiting: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().strip("/")
        asked.put_nowait(name)
        waiting.append(writer)
        if (data := held[name]) is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data)
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
        finally:
            for writer in waiting:
                writer.close()


@contextmanager
def long(monkeypatch: pytest.MonkeyPatch, module: Any, reader: str) -> Iterator[threading.Semaphore]:
    """Decoding ends with the block; the semaphore counts how often it has begun."""
    begun, over = threading.Semaphore(0), threading.Event()

    def read(*_: Any) -> Any:
        begun.release()
        assert over.wait(60)
        raise Refused("it was long")

    monkeypatch.setattr(module, reader, read)
    try:
        yield begun
    finally:
        over.set()


async def test_slow_addresses_take_no_place_from_others(folder: str) -> None:
    client = Client(LocalRuntime(build(folder, speech=False, stage_args={"preprocessing": {"urls": HERE}})))
    await client.start()
    try:
        async with files(never=None) as (url, asked):
            slow = [client.generate(request(ImagePart(url=f"{url}/never"), id=f"slow{n}")) for n in range(40)]
            for _ in slow:
                await asyncio.wait_for(asked.get(), 60)
            async with asyncio.timeout(60):
                async for _ in client.generate(request(TextPart("Hello"), id="quick")):
                    pass
            for generation in slow:
                generation.abort("client")
                await asyncio.wait_for(generation.released(), 60)
    finally:
        await client.stop()


async def test_long_films_take_no_thread_from_speech_and_pictures(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Preprocessing(folder)
    with long(monkeypatch, video, "read_frames") as begun:
        films = [asyncio.ensure_future(stage.prepare(request(VideoPart(b"film%d" % n)))) for n in range(THREADS + 1)]
        for _ in range(THREADS):
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        said = request(AudioPart(tone().tobytes(), PCM_F32_16K), IMAGE)
        prepared = await asyncio.wait_for(stage.prepare(said), 60)
        assert len(prepared.speech) == len(prepared.images) == 1 and not any(f.done() for f in films)
    await asyncio.gather(*films, return_exceptions=True)


async def test_speech_waits_for_no_pictures(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Preprocessing(folder)
    with long(monkeypatch, pictures, "open_image") as begun:
        crowd = [asyncio.ensure_future(stage.prepare(request(ImagePart(b"picture%d" % n)))) for n in range(40)]
        for _ in range(THREADS):
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        said = await asyncio.wait_for(stage.prepare(request(AudioPart(tone().tobytes(), PCM_F32_16K))), 60)
        assert len(said.speech) == 1 and not any(f.done() for f in crowd)
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_what_is_fetched_for_all_is_bounded(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two films fit; the third is to be tried again, and pictures have room of their own. A film gives its room back."""
    data = film.mp4()
    stage = Preprocessing(folder, urls={**HERE, "held_bytes": 2 * len(data) + 100})
    async with files(film=data, image=IMAGE.data) as (url, _):
        films = [request(VideoPart(url=f"{url}/film", name=f"videos[{n}]")) for n in range(3)]
        with long(monkeypatch, video, "read_frames") as begun:
            held = [asyncio.ensure_future(stage.prepare(film)) for film in films[:2]]
            for _ in held:
                assert await asyncio.to_thread(begun.acquire, timeout=60)
            with pytest.raises(StageFailed, match=r"videos\[2\]: this server holds as much of fetched media") as busy:
                await stage.prepare(films[2])
            assert busy.value.retryable and busy.value.code == "server_busy"
            assert len((await stage.prepare(request(ImagePart(url=f"{url}/image")))).images) == 1
        for result in await asyncio.gather(*held, return_exceptions=True):
            assert isinstance(result, Refused)
        monkeypatch.undo()
        assert len((await stage.prepare(films[2])).videos) == 1
        assert stage._films.held == stage._pictures.held == 0


def test_a_share_of_the_room_is_given_back_whatever_happens() -> None:
    room = Room(10)
    with room.share("a") as take:
        take(6)
        with pytest.raises(StageFailed), room.share("b") as too:
            too(4)
            too(1)
        assert room.held == 6
    assert room.held == 0


async def test_an_error_names_the_item_by_its_own_request_s_name(folder: str) -> None:
    """The same damaged picture in two requests at once, in different places."""
    stage = Preprocessing(folder)
    cut = IMAGE.data[:100]
    names = ("images[0]", "item 'of another client'")
    asked = [stage.prepare(request(ImagePart(cut, name=name))) for name in names]
    for name, error in zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        assert isinstance(error, Refused) and str(error).startswith(f"{name}: ") and error.param == name
