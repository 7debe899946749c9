"""What the commands print with: progress bars at a terminal, plain lines elsewhere, one line for a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def fail(message: str, *, code: int = 1) -> NoReturn:
    """One line on stderr, then exit."""
    print(f"antiphon: {message}", file=sys.stderr)
    sys.exit(code)


@contextmanager
def downloads() -> Iterator[Callable[[str, int, int], None]]:
    """A ``weights.Progress``: a bar for each weight at a terminal, else a line when it starts."""
    if not err.is_terminal:
        told: set[str] = set()

        def tell(name: str, done: int, total: int) -> None:
            if name not in told:
                told.add(name)
                size = f" ({total / 1e6:.0f} MB)" if total else ""
                print(f"fetching {name}{size} ...", file=sys.stderr)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bars: dict[str, TaskID] = {}

        def advance(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done, total=total or None)

        yield advance
