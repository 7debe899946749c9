"""JSON bodies and form fields, checked: what is wrong is told with the field's path, as OpenAI's servers tell it."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from antiphon.realtime.errors import BadRequest

T = TypeVar("T")
MAX_FREE = 1 << 20
"""Bytes of one object of the client's own shape, a tool's or an answer's schema say; as much as a conversation allows."""

_WHERE = re.compile(r" - at (?:`key` in )?`\$(?P<path>.*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>.+?)`")
_TYPE = re.compile(r"Expected `(?P<want>.+?)`, got `(?P<got>.+?)`")
_WORDS = {
    "str": "a string", "int": "an integer", "float": "a number", "bool": "a boolean", "object": "an object",
    "array": "an array", "null": "null",
}  # fmt: skip


def parse(data: bytes, shape: type[T], content_type: str = "") -> T:
    """The body as ``shape``; unknown fields are ignored. Raises ``BadRequest``."""
    if not data.strip():
        raise BadRequest("The body is empty; a JSON object is expected.", code="invalid_json")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        hint = f" (Content-Type: {content_type})" if content_type and "json" not in content_type else ""
        raise BadRequest(f"We could not parse the JSON body of your request{hint}.", code="invalid_json") from None
    return convert(value, shape)


def convert(value: Any, shape: type[T], path: str = "") -> T:
    """``value`` as ``shape``; ``path`` is where it stands in the body. Raises ``BadRequest``."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _told(str(error), path) from None


def free(value: dict[str, Any] | None, path: str) -> dict[str, Any]:
    """An object of the client's own shape, nothing when it is not there. Raises ``BadRequest`` for one that is larger than a
    model should be held up with, and for what JSON allows and no message to a stage can hold."""
    try:
        size = len(msgspec.msgpack.encode(value))
    except OverflowError:
        raise invalid(path, "it holds an integer of more than 64 bits") from None
    if size > MAX_FREE:
        raise invalid(path, f"it is larger than the limit of {MAX_FREE} bytes")
    return value or {}


def missing(param: str) -> BadRequest:
    return BadRequest(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)


def invalid(param: str, why: str, code: str = "invalid_value") -> BadRequest:
    return BadRequest(f"Invalid '{param}': {why}.", code=code, param=param)


def _told(message: str, path: str) -> BadRequest:
    where = _WHERE.search(message)
    param = path + (where["path"].replace("[...]", "") if where else "")
    param = param.lstrip(".")
    if absent := _MISSING.match(message):
        return missing(f"{param}.{absent['field']}".lstrip("."))
    sentence = message[: where.start()] if where else message
    if kind := _TYPE.match(sentence):
        want, got = (" or ".join(_WORDS.get(t, t) for t in kind[k].split(" | ")) for k in ("want", "got"))
        if not param:
            return BadRequest(f"The body must be {want}, not {got}.", code="invalid_type")
        return invalid(param, f"expected {want}, but got {got} instead", "invalid_type")
    return invalid(param, sentence.replace("`", ""))
