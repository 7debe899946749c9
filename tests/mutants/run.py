"""Plants bugs, one at a time, in a copy of the source, and sees whether the tests notice each.

    python -m tests.mutants.run [--module session] [--only WORDS] [--examples N]

Every module beside this one names its tests in ``TESTS`` (tried in this order until one fails) and its bugs in
``MUTANTS``. The working tree is never touched. Exit status 1: a bug lived, or could no longer be planted.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".hypothesis", "*.wav", "*.flac")
LONGEST_S = 240


class Mutant(NamedTuple):
    """In ``file`` (under ``antiphon/``) the first place that reads ``old`` is made to read ``new``."""

    name: str
    file: str
    old: str
    new: str


def modules(wanted: Sequence[str]) -> list[str]:
    package = importlib.import_module(__package__)
    found = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name != "run")
    return [name for name in found if not wanted or name in wanted]


def copy_of_the_source(where: Path) -> None:
    for folder in ("antiphon", "tests"):
        shutil.copytree(ROOT / folder, where / folder, ignore=IGNORED)
    shutil.copy(ROOT / "pyproject.toml", where)


def passes(where: Path, tests: str, examples: int) -> bool:
    """A run that hangs is a bug that was noticed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    environment = os.environ | {
        "ANTIPHON_EXAMPLES": str(examples),
        "ANTIPHON_NO_SHRINK": "1",
        "PYTHONPATH": str(where),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tests} could not be run:\n{done.stdout.decode()[-3000:]}{done.stderr.decode()[-2000:]}")
    return done.returncode == 0


def try_one(where: Path, mutant: Mutant, tests: Sequence[str], examples: int) -> str | None:
    """Which tests noticed; None: none did."""
    path = where / "antiphon" / mutant.file
    source = path.read_text()
    if mutant.old not in source:
        raise SystemExit(f"{mutant.name}: no place in {mutant.file} reads {mutant.old!r}")
    path.write_text(source.replace(mutant.old, mutant.new, 1))
    try:
        return next((name for name in tests if not passes(where, name, examples)), None)
    finally:
        path.write_text(source)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--only", default="", help="words in the name of the bug")
    parser.add_argument("--examples", type=int, default=100)
    options = parser.parse_args(argv)
    lived = 0
    for name in modules(options.module):
        module = importlib.import_module(f"{__package__}.{name}")
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder)
            copy_of_the_source(where)
            for tests in module.TESTS:
                if not passes(where, tests, options.examples):
                    raise SystemExit(f"{tests} fails without any bug planted")
            for mutant in itertools.starmap(Mutant, module.MUTANTS):
                if options.only not in mutant.name:
                    continue
                begun = time.monotonic()
                noticed = try_one(where, mutant, module.TESTS, options.examples)
                lived += noticed is None
                print(f"{noticed or 'LIVED':34} {time.monotonic() - begun:5.1f} s  {name}: {mutant.name}", flush=True)
    return 1 if lived else 0


if __name__ == "__main__":
    raise SystemExit(main())
