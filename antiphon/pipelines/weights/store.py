"""The user's cache of weights: fetched once, checked, offline ever after.

A weight is a folder ``<cache>/weights/<name>/``. It appears there whole, by one rename, after every hash was right;
until then it is made in ``.<name>.part/`` beside it, under a lock that ends with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.pipelines.errors import WeightError
from antiphon.pipelines.weights.catalog import CATALOG, File, Weight
from antiphon.pipelines.weights.sources import Folder, SourceError

Progress = Callable[[str, int, int], None]
"""(name of the weight, bytes so far, bytes in all; 0 = not known)"""

_STAMP = ".verified"


@dataclass(frozen=True, slots=True)
class Description:
    """What ``models list`` shows. Sizes in bytes: ``disk`` once installed, ``download`` by the first source."""

    name: str
    title: str
    licence: str
    installed: bool
    path: Path
    disk: int
    download: int
    sources: tuple[str, ...]


def cache_folder() -> Path:
    """``ANTIPHON_CACHE``, else the platform's own place for caches."""
    if chosen := os.environ.get("ANTIPHON_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "antiphon"


def variable(name: str) -> str:
    """The environment variable that says where the user keeps this weight: ``ANTIPHON_WEIGHT_SILERO_VAD``."""
    return "ANTIPHON_WEIGHT_" + "".join(c if c.isalnum() else "_" for c in name).upper()


@dataclass(slots=True)
class Store:
    """Weights under ``root``. ``overrides``: weight name -> the user's own folder or file, tried first and alone."""

    root: Path = field(default_factory=lambda: cache_folder() / "weights")
    catalog: Mapping[str, Weight] = field(default_factory=lambda: CATALOG)
    overrides: Mapping[str, Path] = field(default_factory=dict)
    offline: bool = field(default_factory=lambda: os.environ.get("ANTIPHON_OFFLINE", "") not in ("", "0"))

    def names(self) -> tuple[str, ...]:
        return tuple(self.catalog)

    def describe(self, name: str) -> Description:
        weight = self._weight(name)
        return Description(
            name=name,
            title=weight.title,
            licence=weight.licence,
            installed=self._trusted(weight) or self._unlike(weight, weight.files) is None,
            path=self.root / name,
            disk=sum(file.size for file in weight.files),
            download=weight.sources[0].size if weight.sources else 0,
            sources=tuple(str(source) for source in weight.sources),
        )

    def path(self, name: str) -> Path:
        """The weight's folder; never fetches. Raises WeightError when it is not there or not whole."""
        weight = self._weight(name)
        if not self._trusted(weight) and (problem := self._unlike(weight, weight.files)):
            raise WeightError(f"weight {name}: {problem}; fetch it with `antiphon models pull {name}`")
        return self.root / name

    def verify(self, name: str) -> Path:
        """Read every byte and compare the hashes; raises WeightError naming the file that differs."""
        weight = self._weight(name)
        if problem := self._unlike(weight, weight.files):
            self._distrust(name)
            raise WeightError(f"weight {name}: {problem}; fetch it again with `antiphon models pull {name}`")
        return self.root / name

    def ensure(self, name: str, progress: Progress | None = None) -> Path:
        """The weight's folder, fetched if it is not there or not whole. Safe against other processes doing the same.

        Raises WeightError, one line with the remedy: no source could be reached, or none gave the right bytes.
        """
        weight = self._weight(name)
        folder = self.root / name
        if self._trusted(weight):
            return folder
        problem = self._unlike(weight, weight.files)
        if problem is None:
            self._stamp(weight, folder)
            return folder
        try:
            with self._lock(name):
                if not self._trusted(weight):  # another process may have fetched it while this one waited
                    self._fetch(weight, progress, problem)
        except OSError as e:
            reason = e.strerror or type(e).__name__
            raise WeightError(f"weight {name}: {problem}; cannot write to {self.root} ({reason}); set ANTIPHON_CACHE") from e
        return folder

    def _weight(self, name: str) -> Weight:
        if name not in self.catalog:
            raise WeightError(f"no weight is called {name!r}; there are: {', '.join(self.catalog)}")
        return self.catalog[name]

    def _fetch(self, weight: Weight, progress: Progress | None, problem: str) -> None:
        name, folder = weight.name, self.root / weight.name
        work, made = self.root / f".{name}.part", self.root / f".{name}.part" / "files"
        wanted = sum(file.size for file in weight.files)
        problems = []
        own = self.overrides.get(name) or os.environ.get(variable(name))
        sources = (Folder(Path(own), tuple(file.name for file in weight.files)),) if own else weight.sources
        if self.offline and not own:
            sources, problems = (), [f"{problem.replace('is not installed', 'not in the cache')}, and ANTIPHON_OFFLINE is set"]
        for source in sources:
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)

            def tell(done: int, total: int) -> None:
                if progress:
                    progress(name, done, total or wanted)

            try:
                source.fetch(made, work, tell)
            except SourceError as e:
                problems.append(str(e))
                continue
            if wrong := _difference(made, weight.files):
                problems.append(f"{source}: {wrong}")
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(made, folder)
            self._stamp(weight, folder)
            shutil.rmtree(work, ignore_errors=True)
            return
        shutil.rmtree(made, ignore_errors=True)
        remedy = (
            "connect this machine to the package index once, or put "
            f"{', '.join(file.name for file in weight.files)} into a folder and set {variable(name)} to it"
        )
        raise WeightError(f"weight {name} cannot be had: {'; '.join(problems) or 'no source is known'}. Remedy: {remedy}")

    def _unlike(self, weight: Weight, files: tuple[File, ...]) -> str | None:
        folder = self.root / weight.name
        try:
            return "is not installed" if not folder.is_dir() else _difference(folder, files)
        except OSError as e:  # a folder above it that may not be entered
            return f"cannot be looked for in {self.root} ({e.strerror})"

    def _trusted(self, weight: Weight) -> bool:
        """The hashes were right once, and no file was touched since (the stamp holds size and time of each)."""
        folder = self.root / weight.name
        try:
            stamp = json.loads((folder / _STAMP).read_text())
            return bool(stamp == _state(folder, weight.files))
        except (OSError, ValueError):
            return False

    def _stamp(self, weight: Weight, folder: Path) -> None:
        with contextlib.suppress(OSError):  # a cache that is read-only is checked anew each time, and works
            (folder / _STAMP).write_text(json.dumps(_state(folder, weight.files)))

    def _distrust(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.root / name / _STAMP).unlink()

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / f".{name}.lock", "w") as handle:
            while not _try_lock(handle.fileno()):
                time.sleep(0.1)
            yield  # closing the file, or the end of the process, unlocks


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _state(folder: Path, files: tuple[File, ...]) -> dict[str, list[int | str]]:
    return {file.name: [(stat := (folder / file.name).stat()).st_size, stat.st_mtime_ns, file.sha256] for file in files}


def _difference(folder: Path, files: tuple[File, ...]) -> str | None:
    """What is wrong with the first file that is not as it should be."""
    for file in files:
        path = folder / file.name
        try:
            size = path.stat().st_size
            if size != file.size:
                return f"{file.name} has {size} bytes instead of {file.size}"
            with open(path, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except FileNotFoundError:
            return f"{file.name} is missing"
        except OSError as e:
            return f"{file.name} cannot be read ({e.strerror})"
        if digest != file.sha256:
            return f"{file.name} has the wrong sha256 ({digest[:12]}... instead of {file.sha256[:12]}...)"
    return None
