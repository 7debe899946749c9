"""What a client puts into its conversation and no answer could be made of is refused when it comes, or by its own name."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.info import PictureLimits, PipelineInfo
from antiphon.realtime.errors import ProtocolError
from antiphon.realtime.protocol.media import check_media
from antiphon.realtime.shell.asking import Asking
from antiphon.realtime.shell.store import AudioStore
from antiphon.session.request import Message, Request, Text

SOUND = base64.b64encode(bytes(2)).decode()


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_audio", "audio": ""}, "audio"),
        ({"type": "input_audio", "audio": "AA=="}, "audio"),
        ({"type": "input_image", "image_url": "data:image/png;base64,"}, "image_url"),
    ],
)
def test_an_item_of_nothing(part: dict[str, Any], param: str) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": SOUND}, part]}
    with pytest.raises(ProtocolError, match="It is empty") as created:
        check_media({"type": "conversation.item.create", "item": item})
    assert created.value.param == f"item.content[1].{param}"
    with pytest.raises(ProtocolError, match="It is empty") as given:
        check_media({"type": "response.create", "response": {"input": [item]}})
    assert given.value.param == f"response.input[0].content[1].{param}"


def png_header(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


LIMITS = PictureLimits(max_bytes=100, max_pixels=1_000_000, max_tokens=500, least=1024, most=600_000, place=1024)


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        (b"%PDF-1.7", "is no readable image (PNG, JPEG, WEBP, GIF, BMP, TIFF)"),
        (png_header(1001, 1000), "is 1001 x 1000 pixels; the limit is 1000000 in all"),
        (png_header(1, 201), "is 1 x 201: one side may be at most 200 times the other"),
        (png_header(800, 700), "takes 546 places of the prompt; the limit is 500"),
        (png_header(1, 1) + bytes(100), "has 124 bytes; the limit is 100"),
        (png_header(800, 640), ""),
        (b"\xff\xd8\xff", ""),  # what is wrong with it only a decoder can tell
    ],
)
def test_a_picture_whose_header_tells_that_it_cannot_be_read(picture: bytes, why: str) -> None:
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    content = [{"type": "input_text", "text": "See:"}, {"type": "input_image", "image_url": url}]
    event = {
        "type": "conversation.item.create",
        "event_id": "e1",
        "item": {"type": "message", "role": "user", "content": content},
    }
    check_media(event)
    if not why:
        check_media(event, LIMITS)
        return
    with pytest.raises(ProtocolError) as refused:
        check_media(event, LIMITS)
    assert str(refused.value) == f"Invalid 'item.content[1].image_url'. It {why}."
    assert refused.value.param == "item.content[1].image_url" and refused.value.event_id == "e1"


def test_a_tool_whose_schema_cannot_travel_is_named() -> None:
    asking = Asking("sess_1", AudioStore("sess_1"), PipelineInfo(name="local", model="m"))

    def asked(minimum: int) -> Any:
        tool = {"type": "function", "name": "count", "parameters": {"properties": {"n": {"minimum": minimum}}}}
        return asking.answer("gen_1", Request("", (Message("user", (Text("Hi"),)),), "text", tools=json.dumps([tool])))

    assert asked(-(2**63)).tools[0].parameters == {"properties": {"n": {"minimum": -(2**63)}}}
    with pytest.raises(
        Refused, match="The tool 'count' cannot be offered: its parameters hold an integer of more than 64 bits"
    ):
        asked(-(2**63) - 1)
