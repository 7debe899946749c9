"""Imports only go down: realtime -> session -> pipelines -> codecs. The command line knows every room."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import antiphon

ROOT = Path(antiphon.__file__).parent
BELOW = {
    "codecs": set(),
    "pipelines": {"codecs"},
    "session": {"codecs", "pipelines"},
    "realtime": {"codecs", "pipelines", "session"},
}
LONGEST = 400


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
        rooms |= {name.split(".")[1] for name in names if name.startswith("antiphon.")}
    return rooms


@pytest.mark.parametrize("room", BELOW)
def test_a_room_imports_only_what_lies_below(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        above = imported_rooms(file) - BELOW[room] - {room}
        assert not above, f"{file.relative_to(ROOT)} imports {sorted(above)}"


def test_no_file_is_about_two_things() -> None:
    long = {str(f.relative_to(ROOT)): n for f in ROOT.rglob("*.py") if (n := len(f.read_text().splitlines())) > LONGEST}
    assert not long
