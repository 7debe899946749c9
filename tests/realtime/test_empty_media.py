"""What a client puts into its conversation and no answer could be made of is refused when it comes, or by its own name."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.info import PipelineInfo
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
