"""The wheel holds what a machine without the clone needs, the web page included."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.real
def test_a_wheel_runs_outside_the_clone(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    (wheel,) = tmp_path.glob("antiphon-*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    assert (installed / "antiphon" / "web_demo" / "index.html").exists()
    assert (installed / "antiphon" / "cli" / "question.wav").exists()
    assert (installed / "antiphon" / "py.typed").exists()
    assert not list(installed.rglob("tests")), "tests do not belong into a wheel"
    script = (
        "import antiphon, sys; from antiphon.cli.serve import web_demo; from antiphon.pipelines.local.pipeline import build;"
        "build(); print(antiphon.__file__); print(web_demo())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split() == [
        str(installed / "antiphon" / "__init__.py"),
        str(installed / "antiphon" / "web_demo"),
    ]
