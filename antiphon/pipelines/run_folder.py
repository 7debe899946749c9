"""The private folder of one running pipeline: its sockets and its shared memory. Swept at the next start if left behind.

Whoever runs the pipeline holds a lock on a file in it for as long as it lives; the kernel lets the lock go however that
process ends, so a folder whose lock can be had belongs to nobody.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

log = logging.getLogger("antiphon.runtime")

PREFIX = "antiphon-"
NEW = ".antiphon-new-"
LOCK = "lock"
NEW_S = 60.0
"""A folder that is still being made may be unlocked for a moment; it is not swept before this age."""


def root() -> Path:
    """Memory, where the system has a folder of it."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


class RunFolder:
    """``path`` is readable by this user only. ``close`` removes it whole."""

    def __init__(self, where: Path | None = None) -> None:
        where = where or root()
        sweep(where)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        new = where / f"{NEW}{name}"  # under its final name it is locked from the first moment: no sweep can take it
        new.mkdir(mode=0o700)
        self._lock = os.open(new / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = new.rename(where / f"{PREFIX}{name}")

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(where: Path) -> list[Path]:
    """Remove what a killed process left behind; returns what was removed."""
    gone: list[Path] = []
    for folder in (*where.glob(f"{PREFIX}*"), *where.glob(f"{NEW}*")):
        try:
            found = folder.stat()
            if not folder.is_dir() or found.st_uid != os.getuid():
                continue
            if folder.name.startswith(NEW) and time.time() - found.st_mtime < NEW_S:
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # another start was faster, or it is not one of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # it lives
        else:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
            log.warning("swept %s: its process was killed", folder.name)
        finally:
            os.close(lock)
    return gone
