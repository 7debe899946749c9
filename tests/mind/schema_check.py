"""Does a value satisfy a JSON schema? The few keywords that the tests use, straight from the specification (2020-12)."""

from __future__ import annotations

from typing import Any

_KINDS: dict[str, Any] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == int(v),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


def same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def valid(value: Any, schema: Any, root: Any = None) -> bool:
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].lstrip("#").strip("/").split("/"):
            target = target[part] if part else target
        return valid(value, target, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_KINDS[k](value) for k in kinds):
        return False
    if "enum" in schema and not any(same(value, e) for e in schema["enum"]):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    for several in ("anyOf", "oneOf"):
        if several in schema and not any(valid(value, s, root) for s in schema[several]):
            return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        return all(r in value for r in schema.get("required", [])) and all(
            valid(v, known[k], root) if k in known else valid(v, extra, root) for k, v in value.items()
        )
    if isinstance(value, list):
        long_enough = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return long_enough and all(valid(v, schema.get("items", True), root) for v in value)
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above, below = schema.get("exclusiveMinimum", value - 1), schema.get("exclusiveMaximum", value + 1)
        return bool(low <= value <= high and above < value < below)
    return True
