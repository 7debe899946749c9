"""Media through the REST door: beside the messages, by address under the policy, and everything bad refused by name."""

from __future__ import annotations

import base64
import functools
import http.server
import io
import struct
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import av
import numpy as np
import pytest
import pytest_asyncio
import soundfile
from PIL import Image

from antiphon.pipelines.client import Client
from antiphon.pipelines.qwen3_omni.pipeline import build
from antiphon.pipelines.runtime import LocalRuntime
from antiphon.realtime.settings import Settings
from tests.qwen3_omni import film
from tests.qwen3_omni.cases import AUDIO, IMAGE
from tests.qwen3_omni.oracle import THINKER_TOKENS, Answer, Oracle
from tests.qwen3_omni.test_media import huge_png
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


# -- what a stranger sends


async def test_private_addresses_are_refused(careful: Server, files: str) -> None:
    for url in (f"{files}/image.png", files.replace("127.0.0.1", "localhost") + "/image.png", "http://[::ffff:7f00:1]/"):
        error = refused(await ask(careful, images=[url]))
        assert "private address" in error["message"] and error["code"] == "invalid_media"


async def test_redirects_lead_nowhere_else(server: Server, careful: Server, files: str) -> None:
    assert "file URLs are not fetched" in refused(await ask(server, images=[f"{files}/out"]))["message"]
    assert "answered 404" in refused(await ask(server, videos=[f"{files}/nothing.mp4"]))["message"]
    assert "private address" in refused(await ask(careful, images=[f"{files}/in"]))["message"]


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    held = io.BytesIO()
    image.save(held, format, **options)
    return held.getvalue()


def noise(n: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(n).integers(0, 255, (64, 64, 3), dtype=np.uint8))


def with_chunk(png: bytes, kind: bytes, data: bytes) -> bytes:
    """A PNG with one more chunk behind its header."""
    chunk = struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return png[:33] + chunk + png[33:]


def silence(samples: int, rate: int = 16_000, format: str = "WAV") -> bytes:
    held = io.BytesIO()
    soundfile.write(held, np.zeros(samples, np.float32), rate, format=format)
    return held.getvalue()


def image(data: bytes) -> dict[str, Any]:
    return {"images": [inline("image/any", data)]}


def film_of(data: bytes, **media: Any) -> dict[str, Any]:
    return {"videos": [inline("video/any", data)], "stage_params": {"media": media}}


PNG = encoded(noise(0), "PNG")
BOMB = b"c\0\0" + zlib.compress(b"A" * (80 << 20), 9)
IMAGE_0, VIDEO_0, AUDIO_0 = "images[0]: ", "videos[0]: ", "audios[0]: "
BAD: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a cut picture": (lambda: image(PNG[:60]), IMAGE_0 + "is no readable image"),
    "a vector": (lambda: image(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), IMAGE_0 + "is no readable image"),
    "PostScript": (lambda: image(b"%!PS-Adobe-3.0 EPSF-3.0\n"), IMAGE_0 + "is no readable image"),
    "nothing": (lambda: image(b""), IMAGE_0 + "is empty"),
    "10,000 x 10,000": (lambda: image(huge_png(10_000, 10_000)), IMAGE_0 + "is 10000 x 10000 pixels; the limit is 50000000"),
    "1 x 5000": (lambda: image(encoded(Image.new("RGB", (1, 5000)), "PNG")), "one side may be at most 200 times"),
    "a text that unpacks": (lambda: image(with_chunk(PNG, b"zTXt", BOMB)), IMAGE_0 + "is no readable image"),
    "a profile that unpacks": (lambda: image(with_chunk(PNG, b"iCCP", BOMB)), IMAGE_0 + "is no readable image"),
    "blown up": (
        lambda: {**image(PNG), "stage_params": {"media": {"min_pixels": 16_777_216}}},
        IMAGE_0 + "takes 16384 places of the prompt; the limit is 4096",
    ),
    "a film blown up": (
        lambda: film_of(film.mp4(), min_pixels=16_777_216),
        "places of the prompt; the limit is 4096",
    ),
    "many that are too much together": (
        lambda: {"images": [inline("image/png", PNG)] * 2, "stage_params": {"media": {"min_pixels": 2_200_000}}},
        "this model's maximum context length is 4096 tokens",
    ),
    "too many": (
        lambda: {"videos": [inline("video/mp4", film.mp4())] * 17},
        "17 films, recordings and addresses; the limit is 16",
    ),
    "sound as a film": (lambda: film_of(silence(100)), VIDEO_0 + "is no video container"),
    "sound in a film's clothes": (lambda: film_of(soundtrack_only()), VIDEO_0 + "has no video stream"),
    "a cut film": (lambda: film_of(film.mp4()[: len(film.mp4()) // 2]), VIDEO_0 + "cannot be decoded"),
    "zeros": (lambda: film_of(bytes(5000)), VIDEO_0 + "is no video container"),
    "no samples": (lambda: {"audios": [base64.b64encode(silence(0)).decode()]}, AUDIO_0 + "the audio file holds no sound"),
    "three hours": (
        lambda: {"audios": [base64.b64encode(silence(3 * 3600 * 16_000, format="FLAC")).decode()]},
        AUDIO_0 + "the audio is longer than the limit of 2400 seconds",
    ),
    "a rate that is none": (
        lambda: {"audios": [base64.b64encode(silence(100, rate=1)).decode()]},
        AUDIO_0 + "a sample rate of 1 Hz is outside",
    ),
    "a host that is none": (lambda: {"images": [f"http://{'a' * 300}.com/"]}, IMAGE_0 + "could not be fetched"),
    "an unknown voice": (lambda: {"modalities": ["text", "audio"], "audio": {"voice": "nobody", "format": "wav"}}, "nobody"),
    "a parameter nobody reads": (lambda: film_of(film.mp4(), frames=3), "stage_params.media.frames is not one of"),
}


def soundtrack_only() -> bytes:
    """An mp4 without pictures."""
    held = io.BytesIO()
    with av.open(held, "w", format="mp4") as out:
        stream = out.add_stream("aac", rate=16_000)
        stream.layout = "mono"
        for at in range(0, 8192, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, at
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return held.getvalue()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", list(BAD))
async def test_bad_media_are_named(name: str, careful: Server) -> None:
    body, words = BAD[name]
    assert words in refused(await ask(careful, **body()))["message"]
    assert careful.state.health()["status"] == "ready"


async def test_a_part_is_named_by_its_place_in_the_messages(careful: Server) -> None:
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": inline("image/png", PNG[:60])}}]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": parts}]
    error = refused(await ask(careful, messages=messages))
    assert error["message"].startswith("messages[2].content[1]: is no readable image")
    assert error["param"] == "messages[2].content[1]"
    messages[1]["content"] = parts
    error = refused(await ask(careful, messages=messages))
    assert error["message"].startswith("messages[1].content[1]: ") and error["param"] == "messages[1].content[1]"


async def test_odd_media_that_are_none_the_less_media(careful: Server) -> None:
    """Their first picture is what is seen, as upright and as large as it is."""
    still = said(await ask(careful, **image(PNG)))
    moving = {"save_all": True, "append_images": [noise(1), noise(2)], "duration": 100}
    assert said(await ask(careful, **image(encoded(noise(0), "WEBP", lossless=True, **moving)))) == still
    assert said(await ask(careful, **image(encoded(noise(0), "TIFF")))) == still
    for odd in (Image.new("RGB", (1, 1)), Image.new("RGBA", (64, 30)), Image.new("P", (30, 5000)), Image.new("I;16", (64, 64))):
        said(await ask(careful, **image(encoded(odd, "PNG"))))
    said(await ask(careful, **image(encoded(noise(0), "GIF", **moving))))
    said(await ask(careful, **image(encoded(noise(0), "JPEG", exif=b"Exif\0\0garbage"))))
    said(await ask(careful, audios=[base64.b64encode(silence(1)).decode()]))
