"""What ``antiphon serve`` asks of the system before it serves: a port of its own, descriptors, an orderly end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli import serve
from antiphon.pipelines.errors import ConfigError
from antiphon.settings import ServerSettings

LITTLE = """
import resource
from antiphon.cli import serve
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
serve.more_descriptors()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, serve.DESCRIPTORS), hard))
"""
SERVED = """
import asyncio, signal, sys
from starlette.applications import Starlette
from antiphon.cli import serve
from antiphon.realtime import sockets
from antiphon.settings import ServerSettings
async def drained():
    print("drained", flush=True)
listening = serve.listen(ServerSettings(port=0))
server = sockets.Server(sockets.config(Starlette(), log_config=None), drained)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
serve.hang_up_is_the_end(server)
async def main():
    asyncio.get_running_loop().call_later(0.5, lambda: print("up", flush=True))
    await server.serve(sockets=[listening])
asyncio.run(main())
"""
LOGGING = """
import asyncio, logging, websockets
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from antiphon.cli import serve
from antiphon.realtime import sockets
from antiphon.settings import ServerSettings
settings = ServerSettings(port=0, log_level="debug")
serve.set_up_logging(settings)
async def echo(socket):
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()
async def drained():
    pass
async def main():
    listening = serve.listen(settings)
    server = sockets.Server(sockets.config(Starlette(routes=[WebSocketRoute("/", echo)]), log_config=None), drained)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    url, key = f"ws://127.0.0.1:{listening.getsockname()[1]}", {"Authorization": "Bearer sk-topsecret"}
    async with websockets.connect(url, additional_headers=key, logger=quiet) as socket:
        await socket.send("topsecret words")
        print(await socket.recv(), flush=True)
    server.should_exit = True
    await serving
quiet = logging.getLogger("the client's own")
quiet.propagate = False
asyncio.run(main())
"""
ASKING = """
import httpx
from antiphon.pipelines import worker
worker.set_up_logging("model.0", 10)
with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200))) as client:
    print(client.get("http://user:topsecret@example.com/v1").status_code)
"""
FETCHING = """
import time
from antiphon.cli import backend
def ensure(name, progress):
    try:
        print("fetching", flush=True)
        time.sleep(30)
    finally:
        print("ended", flush=True)
backend.weights.ensure = ensure
backend.fetch(["silero-vad"])
"""


def test_a_fetch_that_is_told_to_end_ends_what_it_began() -> None:
    with subprocess.Popen([sys.executable, "-c", FETCHING], stdout=subprocess.PIPE, text=True) as fetching:
        assert fetching.stdout is not None
        assert fetching.stdout.readline() == "fetching\n"
        fetching.send_signal(signal.SIGTERM)
        assert fetching.stdout.readline() == "ended\n"
        assert fetching.wait(10) == -signal.SIGTERM


def test_the_second_of_two_that_bound_a_port_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serve.listen(ServerSettings(port=0)) as first:
        settings = ServerSettings(port=first.getsockname()[1])
        with serve.listen(settings) as second:
            serve.begin_listening(first, settings)
            with pytest.raises(SystemExit) as ended:
                serve.begin_listening(second, settings)
    assert ended.value.code == 1
    assert f"cannot listen on 127.0.0.1:{settings.port}" in capsys.readouterr().err


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run([sys.executable, "-m", "tests.clients.py.certificate", str(cert), str(key)], check=True)
    serve.check_certificate(ServerSettings())
    serve.check_certificate(ServerSettings(tls_cert=str(cert), tls_key=str(key)))
    (tmp_path / "rubbish").write_text("x")
    for wrong, why in ((tmp_path / "absent", "No such file"), (tmp_path / "rubbish", "not a PEM"), (tmp_path, "directory")):
        with pytest.raises(ConfigError, match=why) as refused:
            serve.check_certificate(ServerSettings(tls_cert=str(cert), tls_key=str(wrong)))
        assert str(wrong) in str(refused.value)


def test_the_descriptors_are_as_many_as_the_system_allows() -> None:
    pytest.importorskip("resource")
    assert subprocess.run([sys.executable, "-c", LITTLE], capture_output=True, text=True, check=True).stdout == "True\n"


def test_neither_a_key_nor_a_word_is_logged_at_any_level() -> None:
    ran = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "topsecret words\n"
    assert "connection open" in ran.stderr
    assert "topsecret" not in ran.stderr


def test_a_model_process_logs_no_address_that_it_asks() -> None:
    ran = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "200\n"
    assert "topsecret" not in ran.stderr


@pytest.mark.parametrize("way", ["terminal", "nohup"])
def test_a_hang_up_ends_in_order_unless_it_is_ignored(way: str) -> None:
    if sys.platform == "win32":
        pytest.skip("no SIGHUP")
    server = subprocess.Popen([sys.executable, "-c", SERVED, way], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == "up\n"
        server.send_signal(signal.SIGHUP)
        if way == "nohup":
            with pytest.raises(subprocess.TimeoutExpired):
                server.wait(0.7)
            server.send_signal(signal.SIGTERM)
        assert server.stdout.readline() == "drained\n"
        assert server.wait(10) == (0 if way == "terminal" else -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
