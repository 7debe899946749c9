"""Fields whose shape is the client's own: what JSON can say and no message between processes can hold is refused by name."""

from __future__ import annotations

import copy
import time
from typing import Any

import msgspec
import pytest

from antiphon.realtime.errors import BadRequest
from antiphon.realtime.rest import chat_body
from antiphon.realtime.rest.audio_answers import AudioAnswers
from antiphon.realtime.rest.chat_body import ChatBody
from tests.realtime.rest.test_fuzz import FULL
from tests.realtime.stub_client import INFO

PLACES: dict[str, Any] = {
    "stage_params": lambda body, value: body["stage_params"].update(a={"b": [value]}),
    "tools[0].function.parameters": lambda body, value: body["tools"][0]["function"].update(parameters={"minimum": value}),
    "response_format.json_schema.schema": lambda body, value: body["response_format"]["json_schema"].update(
        schema={"properties": {"a": {"const": value}}}
    ),
}


def read(put: Any, value: Any) -> bytes:
    """The request as it travels."""
    body = copy.deepcopy(FULL)
    put(body, value)
    chat = chat_body.read(msgspec.convert(body, ChatBody), INFO, "r", AudioAnswers(60, time.time), "me")
    return msgspec.msgpack.encode(chat.request)


@pytest.mark.parametrize("param", list(PLACES))
def test_integers_of_more_than_64_bits(param: str) -> None:
    for value in (2**64, -(2**63) - 1, 10**40):
        with pytest.raises(BadRequest, match="an integer of more than 64 bits") as caught:
            read(PLACES[param], value)
        assert caught.value.param == param
    for value in (2**64 - 1, -(2**63)):
        assert read(PLACES[param], value)


@pytest.mark.parametrize("param", list(PLACES))
def test_more_than_a_model_should_be_held_up_with(param: str) -> None:
    assert len(read(PLACES[param], "x" * 1_000_000)) > 1_000_000
    with pytest.raises(BadRequest, match="larger than the limit of 1048576 bytes") as caught:
        read(PLACES[param], ["some value"] * 100_000)
    assert caught.value.param == param
