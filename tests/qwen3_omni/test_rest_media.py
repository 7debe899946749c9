"""Media through the REST door: beside the messages, by address under the policy, and everything bad refused by name."""

from __future__ import annotations

import base64
import functools
import http.server
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.qwen3_omni import film
from tests.qwen3_omni.cases import AUDIO, IMAGE
from tests.qwen3_omni.oracle import THINKER_TOKENS, Answer, Oracle
from tests.realtime.rest.conftest import Server, serving, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Expected = Callable[[str], Answer]
FILES = {"image.png": IMAGE.data, "film.mp4": film.mp4()}


def inline(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web server with the media, on this machine. ``/away/NAME`` redirects to NAME; ``/out`` to a file's address."""
    folder = tmp_path_factory.mktemp("files")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)

    class Files(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            target = {"/out": "file:///etc/passwd", "/in": "http://[::ffff:127.0.0.1]/"}.get(self.path)
            if self.path.startswith("/away/"):
                target = self.path.removeprefix("/away")
            if target is None:
                return super().do_GET()
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


async def started(folder: str, **preprocessing: Any) -> AsyncIterator[Server]:
    config = build(folder, stage_args={"preprocessing": preprocessing})
    async with serving(Client(LocalRuntime(config)), Settings()) as server:
        await until(lambda: server.state.ready or server.state.failure is not None, 30)
        assert server.state.ready, server.state.health()
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(folder: str) -> AsyncIterator[Server]:
    """It fetches from this machine too."""
    async for server in started(folder, urls={"allow_private": True, "seconds": 5.0}):
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def careful(folder: str) -> AsyncIterator[Server]:
    """The default policy."""
    async for server in started(folder):
        yield server


async def ask(server: Server, text: str = "What?", tokens: int = THINKER_TOKENS, **body: Any) -> Any:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": tokens, **body}
    return await server.http.post("/v1/chat/completions", json=asked)


def said(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def refused(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"]
    return error


@pytest.mark.parametrize("how", ["data", "bare", "address", "redirected", "part"])
async def test_an_image_however_it_comes(how: str, server: Server, files: str, expected: Expected, oracle: Oracle) -> None:
    bare = base64.b64encode(IMAGE.data).decode()
    url = {
        "data": f"data:image/png;base64,{bare}",
        "bare": bare,
        "redirected": f"{files}/away/image.png",
    }.get(how, f"{files}/image.png")
    body: dict[str, Any] = {"images": [url]}
    if how == "part":
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]
        body = {"messages": [{"role": "user", "content": parts}]}
    answer = await ask(server, tokens=30, **body)
    assert said(answer) == oracle.tok.decode(expected("image").tokens, skip_special_tokens=True)


async def test_audio_beside_the_messages(server: Server, expected: Expected, oracle: Oracle) -> None:
    answer = await ask(server, "What can you hear?", audios=[base64.b64encode(AUDIO.data).decode()])
    assert said(answer) == oracle.tok.decode(expected("audio").tokens, skip_special_tokens=True)


@pytest.mark.parametrize(("name", "sound"), [("video", False), ("video with sound", True)])
@pytest.mark.parametrize("how", ["data", "address"])
async def test_videos_beside_the_messages(
    name: str, sound: bool, how: str, server: Server, files: str, expected: Expected, oracle: Oracle
) -> None:
    url = inline("video/mp4", film.mp4()) if how == "data" else f"{files}/film.mp4"
    media = {"video_fps": film.SAMPLED_FPS, **film.BOUNDS, "use_audio_in_video": sound}
    answer = await ask(server, videos=[url], stage_params={"media": media})
    assert said(answer) == oracle.tok.decode(expected(name).tokens, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/image.png", "private address"),
        ("/away/image.png", "private address"),
    ],
)
async def test_private_addresses_are_refused(path: str, words: str, careful: Server, files: str) -> None:
    error = refused(await ask(careful, images=[files + path]))
    assert words in error["message"] and error["code"] == "invalid_media"
