"""A JSON answer by msgspec: faster than the standard library on megabytes of base64."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


class JsonAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)
