"""Starting a process of the graph and knowing when it has ended. Spawned here; another launcher may place it elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Protocol

import msgspec

import antiphon
from antiphon.pipelines.placement import WorkerSpec

REAP_S = 5.0


class ProcessHandle(Protocol):
    """A process that was started. ``died`` is its exit status (negative: the signal), set on the loop that started it."""

    died: asyncio.Future[int]

    @property
    def place(self) -> str:
        """Where it runs, for an operator: "pid 4711"."""

    def kill(self) -> None:
        """End it at once, whatever it does."""

    async def stop(self, grace_s: float) -> None:
        """It was told to end; wait so long, then kill it. Returns when it has ended."""


class Launcher(Protocol):
    def start(self, spec: WorkerSpec) -> ProcessHandle:
        """On the event loop. Raises OSError when no process can be made."""


class Spawned:
    """A child of this process, in a session of its own: a Ctrl-C meant for the door does not reach it."""

    def __init__(self, child: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self.died: asyncio.Future[int] = loop.create_future()
        self._child = child
        self._loop = loop
        self._sentinel = -1
        try:
            self._sentinel = os.pidfd_open(child.pid)
        except (AttributeError, OSError):  # not on this system: a thread waits instead
            threading.Thread(target=self._wait, name=f"wait-{child.pid}", daemon=True).start()
        else:
            loop.add_reader(self._sentinel, self._ended)

    @property
    def place(self) -> str:
        return f"pid {self._child.pid}"

    def kill(self) -> None:
        if not self.died.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(self.died), grace_s)
        except TimeoutError:
            self.kill()
            await self.died

    def _wait(self) -> None:
        self._child.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        if self.died.done():
            return
        if self._sentinel >= 0:
            self._loop.remove_reader(self._sentinel)
            os.close(self._sentinel)
            self.kill()  # what it started itself; its own id is not free before it is reaped
        status = self._child.wait(REAP_S)
        if self._child.stdin is not None:
            self._child.stdin.close()
        self.died.set_result(status)


def _found() -> dict[str, str]:
    """What lets a child find this package where it is not installed."""
    root = str(Path(antiphon.__file__).parent.parent)
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}  # it would come before the standard library
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(paths)}


class SpawnLauncher:
    """``python -m antiphon.pipelines.worker``. Call ``start`` on a thread that lives as long as the child may."""

    def start(self, spec: WorkerSpec) -> Spawned:
        child = subprocess.Popen(
            [sys.executable, "-m", "antiphon.pipelines.worker"],
            stdin=subprocess.PIPE,
            env={**os.environ, **_found(), **spec.env},
            start_new_session=True,
        )
        told = msgspec.msgpack.encode((spec, os.getpid()))
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died already: its sentinel says so
            child.stdin.write(len(told).to_bytes(4, "big") + told)
            child.stdin.flush()
        return Spawned(child, asyncio.get_running_loop())
