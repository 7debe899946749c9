"""The stock clients' own environment: a virtual environment and a node_modules folder under .cache/clients."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "clients"
PYTHON = CACHE / "venv" / "bin" / "python"
NODE_FOLDER = CACHE / "node"
INSTALL_S = 900


class Missing(Exception):
    """The environment cannot be had here; the text says why."""


def python() -> Path:
    """The interpreter with the Python clients, installed on the first call."""
    if not _is_fresh("python", HERE / "requirements.txt"):
        if not PYTHON.exists():
            venv.create(CACHE / "venv", with_pip=True)
        _install([str(PYTHON), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")], CACHE)
        _stamp("python", HERE / "requirements.txt")
    return PYTHON


def node() -> Path:
    """The folder with the JavaScript clients, their scripts copied beside node_modules."""
    if shutil.which("npm") is None:
        raise Missing("npm is not installed")
    NODE_FOLDER.mkdir(parents=True, exist_ok=True)
    if not _is_fresh("node", HERE / "package.json"):
        shutil.copy(HERE / "package.json", NODE_FOLDER)
        _install(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], NODE_FOLDER)
        _stamp("node", HERE / "package.json")
    shutil.copytree(HERE / "js", NODE_FOLDER / "js", dirs_exist_ok=True)
    return NODE_FOLDER


def certificate() -> tuple[Path, Path]:
    """A fresh self-made certificate and its key, as PEM files."""
    cert, key = CACHE / "cert.pem", CACHE / "key.pem"
    subprocess.run([python(), HERE / "py" / "certificate.py", cert, key], check=True)
    return cert, key


def _install(command: list[str], folder: Path) -> None:
    print("installing:", " ".join(command), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took longer than {INSTALL_S} s") from None
    if done.returncode:
        raise Missing(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def _is_fresh(name: str, source: Path) -> bool:
    stamp = CACHE / f"{name}.stamp"
    return stamp.exists() and stamp.read_text() == _digest(source)


def _stamp(name: str, source: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / f"{name}.stamp").write_text(_digest(source))
