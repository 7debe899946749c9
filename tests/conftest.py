"""What every test gets: a watch for leaked tasks, threads and shared memory, and the recordings if they are here."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# What is landed is decided by the same cases each time; `make soak` looks for new ones. No machine is too slow for a case.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

SHARED = Path(os.environ.get("ANTIPHON_SHARED", Path(__file__).parent.parent.parent / "shared"))
GRACE_S = 10.0
"""How long a thread or a segment may take to go after the test that made it."""
KEPT_THREADS = ("asyncio_", "ThreadPoolExecutor", "AnyIO", "pytest_timeout", "tqdm")
"""Pools of the standard library and of libraries that live as long as the process."""


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if not t.name.startswith(KEPT_THREADS)}


def _segments() -> set[str]:
    try:
        mine = f"antiphon-{os.getpid()}-"  # a server that runs beside the tests has folders of its own
        return {n for n in os.listdir("/dev/shm") if n.startswith(mine)}
    except FileNotFoundError:
        return set()


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a thread, an asyncio task or a shared-memory segment behind.

    Module- and session-wide servers are started before this fixture sees the test, so they are not counted.
    """
    threads, segments = _threads(), _segments()
    yield
    deadline = time.monotonic() + GRACE_S
    while (left := (_threads() - threads) | (_segments() - segments)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    if left:
        pytest.fail(f"left behind: {sorted(str(x) for x in left)}")


def _watched(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The async test, failing if it leaves a task on its loop."""

    @functools.wraps(test)
    async def run(*args: object, **kwargs: object) -> None:
        before = running_tasks()
        await test(*args, **kwargs)
        deadline = time.monotonic() + GRACE_S
        while (left := running_tasks() - before) and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.02)
        assert not left, f"tasks left behind: {left}"

    return run


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
    for item in items:
        if item.get_closest_marker("real"):
            _REAL.marked.add(item.nodeid)
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _watched(item.obj)


@pytest.fixture
def shared_audio() -> Path:
    """The folder of recorded human speech; skips, with the reason, where it is absent."""
    folder = SHARED / "audio"
    if not (folder / "jfk.flac").exists():
        pytest.skip(f"recordings are absent: {folder.name} not found beside the checkout")
    return folder


def running_tasks() -> set[asyncio.Task[object]]:
    return {t for t in asyncio.all_tasks() if t is not asyncio.current_task()}


# -- real tests: counted, and under ANTIPHON_REAL=1 never skipped


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-report", default="", help="write how many real tests ran and were skipped to this file")


class RealTests:
    """Counts tests marked ``real``; with ANTIPHON_REAL=1 a skipped one fails the run."""

    def __init__(self) -> None:
        self.marked: set[str] = set()
        self.ran: set[str] = set()
        self.skipped: set[str] = set()

    def see(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self.marked:
            return
        if report.skipped:
            self.skipped.add(report.nodeid)
        elif report.when == "call":
            self.ran.add(report.nodeid)


_REAL = RealTests()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _REAL.see(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    counts = f"real tests run: {len(_REAL.ran)}, skipped: {len(_REAL.skipped)}"
    target = session.config.getoption("--real-report")
    if target:
        Path(target).write_text(counts + "\n" + "".join(f"skipped: {name}\n" for name in sorted(_REAL.skipped)))
    if os.environ.get("ANTIPHON_REAL") == "1" and (_REAL.skipped or not _REAL.ran) and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: object) -> None:
    write = getattr(terminalreporter, "write_line", print)
    write(f"real tests run: {len(_REAL.ran)}, skipped: {len(_REAL.skipped)}")
