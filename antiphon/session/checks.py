"""Small checks of client values: each returns the value, or refuses it by the path of its parameter."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from antiphon.session.errors import Refused, missing, wrong_type, wrong_value

Json = dict[str, Any]
MAX_NAME = 64
MAX_ID = 512
MAX_DESCRIPTION = 1024
MAX_DEPTH = 64
"""Levels of an object of a client that is kept as it is: everything that copies or writes it goes into it by recursion."""
MAX_TEXT = 1 << 20
"""Characters in any one text of a client: instructions, a message, a tool's arguments."""


def required(where: Json, key: str, path: str = "") -> Any:
    """The value of a key that must be there and not null."""
    value = where.get(key)
    if value is None:
        raise missing(f"{path}.{key}" if path else key)
    return value


def an_object(value: Any, param: str) -> Json:
    if not isinstance(value, dict):
        raise wrong_type(param, "an object", value)
    return value


def a_list(value: Any, param: str, longest: int = 4096) -> list[Any]:
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    if len(value) > longest:
        raise Refused(
            f"Invalid '{param}': array too long. Expected at most {longest} elements, but got {len(value)} instead.",
            "array_above_max_length",
            param,
        )
    return value


def a_string(value: Any, param: str, longest: int = MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if len(value) > longest:
        raise Refused(
            f"Invalid '{param}': string too long. Expected a string with maximum length {longest}, "
            f"but got a string with length {len(value)} instead.",
            "string_above_max_length",
            param,
        )
    if not value.isascii() and not _encodable(value):
        raise Refused(f"Invalid '{param}': not valid Unicode (a lone surrogate).", "invalid_value", param)
    return value


def a_name(value: Any, param: str, longest: int = MAX_NAME) -> str:
    """A string that is not empty."""
    if not a_string(value, param, longest):
        raise Refused(f"Invalid '{param}': empty string.", "invalid_value", param)
    return str(value)


def a_free_object(value: Any, param: str, longest: int = MAX_TEXT) -> Json:
    """An object that is kept as it is: JSON all the same, and of a bounded size."""
    an_object(value, param)
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise Refused(f"Invalid '{param}': not valid JSON.", "invalid_value", param) from None
    a_string(text, param, longest)
    if _deeper(value, MAX_DEPTH):
        raise Refused(f"Invalid '{param}': nested too deeply (at most {MAX_DEPTH} levels).", "invalid_value", param)
    return dict(value)


def _deeper(value: Any, levels: int) -> bool:
    """Level by level: what is to be refused for its depth must not be gone into by recursion."""
    layer = [value]
    while layer and levels >= 0:
        levels -= 1
        layer = [inner for v in layer for inner in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())]
    return bool(layer)


def a_bool(value: Any, param: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(param, "a boolean", value)
    return value


def an_int(value: Any, param: str, low: int, high: int) -> int:
    """Whole numbers may come as floats (JavaScript has no other); they stay ints here."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(param, "an integer", value)
    _within(value, param, low, high, "integer")
    return value


def a_number(value: Any, param: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong_type(param, "a decimal", value)
    _within(value, param, low, high, "decimal")
    return value


def one_of(value: Any, param: str, choices: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if value not in choices:
        raise wrong_value(param, value, ", ".join(f"'{c}'" for c in choices))
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _within(value: float, param: str, low: float, high: float, kind: str) -> None:
    for bad, word, bound in ((value < low, "below_min", low), (value > high, "above_max", high)):
        if bad:
            side = ">=" if word == "below_min" else "<="
            raise Refused(
                f"Invalid '{param}': {kind} {word.replace('_', ' ')} value. Expected a value {side} {bound}, "
                f"but got {value} instead.",
                f"{kind}_{word}_value",
                param,
            )


def canonical(value: Any) -> str:
    """JSON whose text is equal when the values are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
