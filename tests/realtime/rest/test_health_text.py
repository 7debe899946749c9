"""What /health says of a failure: the file's name, not where it lies."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.realtime.rest.health import without_folders


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("'/home/me/.cache/antiphon/voice.onnx' is broken", "'.../voice.onnx' is broken"),
        ("cannot write to ~/cache/x/: disk full", "cannot write to .../: disk full"),
        ("see https://example.org/a/b for 3/4 of it, or /v1", "see https://example.org/a/b for 3/4 of it, or /v1"),
        ("speech/sec 1/2, and/or", "speech/sec 1/2, and/or"),
    ],
)
def test_folders_are_left_out(said: str, shown: str) -> None:
    told: dict[str, Any] = {"status": "degraded", "processes": {"mind": [{"ended": said, "pid": 7}]}, "error": said}
    wanted = {"status": "degraded", "processes": {"mind": [{"ended": shown, "pid": 7}]}, "error": shown}
    assert without_folders(told) == wanted
