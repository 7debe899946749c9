"""JSON schema -> a compact GBNF grammar: no free whitespace, declared order, nothing that could not be validated.

What a schema asks and a grammar cannot keep is refused by name, never dropped. Annotations (title, description, default,
examples) are read past. The subset: type, properties, required, additionalProperties, items, minItems, maxItems, enum,
const, anyOf, oneOf, $ref into the same schema, minLength, maxLength, minimum, maximum and their exclusive kinds, and the
formats date, time and date-time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from antiphon.pipelines.engines.llama_cpp.number_rules import LIMIT, whole
from antiphon.pipelines.errors import Refused

MAX_RULES = 2000
MAX_REPEAT = 256

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "strict", "nullable"}
)
_BY_TYPE = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

_LIBRARY = {
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "string": '"\\"" char* "\\""',
    "integer": f'"-"? ("0" | [1-9] [0-9]{{0,{len(str(LIMIT)) - 1}}})',
    "number": 'integer ("." [0-9]{1,8})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (string ":" value ("," string ":" value)*)? "}"',
    "array": '"[" (value ("," value)*)? "]"',
    "day": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])',
    "clock": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9]',
    "date": '"\\"" day "\\""',
    "time": '"\\"" clock "Z\\""',
    "date-time": '"\\"" day "T" clock "Z\\""',
}
_NEEDS = {
    "string": ("char",),
    "number": ("integer",),
    "value": ("object", "array", "string", "number", "boolean", "null"),
    "object": ("string", "value"),
    "array": ("value",),
    "date": ("day",),
    "time": ("clock",),
    "date-time": ("day", "clock"),
}


def literal(text: str) -> str:
    """A GBNF literal for exactly this text."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_object() -> str:
    """The grammar of any JSON object."""
    return _Writer({}, "response_format").grammar("object")


def from_schema(schema: Mapping[str, Any], param: str = "response_format") -> str:
    """The grammar of what ``schema`` allows, with a rule ``root``; raises Refused naming the keyword."""
    writer = _Writer(schema, param)
    return writer.grammar(writer.rule(schema, "root"))


def choice(alternatives: list[str]) -> str:
    """The grammar of exactly these texts."""
    return "root ::= " + " | ".join(literal(a) for a in alternatives) + "\n"


class _Writer:
    def __init__(self, root: Mapping[str, Any], param: str) -> None:
        self._root = root
        self._param = param
        self._rules: dict[str, str] = {}
        self._refs: dict[str, str] = {}
        self._depth = 0  # objects and arrays around what is being written
        self._opened: dict[str, int] = {}  # references being followed -> the depth where that began

    def grammar(self, start: str) -> str:
        lines = [f"root ::= {self._library(start)}"]
        return "\n".join(lines + [f"{name} ::= {body}" for name, body in self._rules.items()]) + "\n"

    def refuse(self, what: str) -> Refused:
        return Refused(f"the JSON schema uses {what}, which is not supported here", code="unsupported_value", param=self._param)

    def rule(self, schema: Any, hint: str) -> str:
        """The name of a rule for ``schema``."""
        if schema is True or schema == {}:
            return self._library("value")
        if not isinstance(schema, Mapping):
            raise self.refuse("something that is not a schema")
        if "$ref" in schema:
            return self._reference(schema["$ref"], hint)
        if len(self._rules) > MAX_RULES:
            raise self.refuse("too many parts")
        return self._body(schema, hint)

    def _body(self, schema: Mapping[str, Any], hint: str) -> str:
        for keyword in ("const", "enum", "anyOf", "oneOf"):
            if keyword in schema:
                self._only(schema, {keyword, "type"})
                return self._alternatives(schema, keyword, hint)
        kind = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else None)
        kinds = list(kind) if isinstance(kind, list) else [kind]
        if schema.get("nullable") is True and "null" not in kinds:
            kinds.append("null")
        if len(kinds) > 1:
            parts = [self._typed(self._for_type(schema, k), k, f"{hint}-{k}") for k in kinds]
            return self._add(hint, " | ".join(parts))
        if kind is None:
            self._only(schema, set())
            return self._library("value")
        return self._typed(schema, kinds[0], hint)

    def _for_type(self, schema: Mapping[str, Any], kind: Any) -> dict[str, Any]:
        """Of several types: the keywords that are about this one."""
        others = set().union(*_BY_TYPE.values()) - _BY_TYPE.get(kind, frozenset())
        return {k: v for k, v in schema.items() if k not in others}

    def _alternatives(self, schema: Mapping[str, Any], keyword: str, hint: str) -> str:
        given = schema[keyword]
        if keyword == "const":
            return self._add(hint, literal(compact(given)))
        if not isinstance(given, list) or not given:
            raise self.refuse(f"an empty {keyword}")
        if keyword == "enum":
            return self._add(hint, " | ".join(literal(compact(v)) for v in given))
        if "type" in schema:
            raise self.refuse(f"{keyword} beside type")
        return self._add(hint, " | ".join(self.rule(s, f"{hint}-{i}") for i, s in enumerate(given)))

    def _typed(self, schema: Mapping[str, Any], kind: Any, hint: str) -> str:
        if kind not in _TYPES:
            raise self.refuse(f"the type {kind!r}")
        self._only(schema, {"type"} | _BY_TYPE[kind])
        match kind:
            case "object" | "array":
                self._depth += 1
                name = self._object(schema, hint) if kind == "object" else self._array(schema, hint)
                self._depth -= 1
                return name
            case "string":
                return self._string(schema, hint)
            case "integer" | "number":
                return self._number(schema, kind, hint)
        return self._library(kind)

    def _object(self, schema: Mapping[str, Any], hint: str) -> str:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = list(schema.get("required") or ())
        unknown = [r for r in required if r not in properties]
        if unknown:
            raise self.refuse(f"a required property {unknown[0]!r} that it does not describe")
        if not properties:
            return self._map(schema.get("additionalProperties", "properties" not in schema), hint)
        pairs = []
        for i, (name, sub) in enumerate(properties.items()):
            pair = f"{literal(compact(name))} {literal(':')} {self.rule(sub, f'{hint}-{i}')}"
            pairs.append((self._add(f"{hint}-kv{i}", pair), name in required))
        after = self._add(f"{hint}-s{len(pairs)}", '"}"')
        first = after
        for i, (pair, needed) in reversed(list(enumerate(pairs))):
            only = f"{pair} {after}"
            first = self._add(f"{hint}-f{i}", only if needed else f"{only} | {first}")
            rest = f'"," {pair}'
            after = self._add(f"{hint}-s{i}", f"{rest} {after}" if needed else f"({rest})? {after}")
        return self._add(hint, f'"{{" {first}')

    def _map(self, values: Any, hint: str) -> str:
        """No declared properties: any names, values as ``additionalProperties`` says. Where an empty list of them is
        declared nothing is allowed but what it says: a tool without arguments is called without."""
        if values is False:
            return self._add(hint, '"{}"')
        if values is True or values == {}:
            return self._library("object")
        pair = self._add(f"{hint}-kv", f'{self._library("string")} ":" {self.rule(values, f"{hint}-v")}')
        return self._add(hint, f'"{{" ({pair} ("," {pair})*)? "}}"')

    def _array(self, schema: Mapping[str, Any], hint: str) -> str:
        item = self.rule(schema.get("items", True), f"{hint}-item")
        low, high = int(schema.get("minItems", 0)), schema.get("maxItems")
        if (high is not None and not low <= int(high) <= MAX_REPEAT) or low > MAX_REPEAT:
            raise self.refuse(f"minItems or maxItems outside 0..{MAX_REPEAT}")
        if high == 0:
            return self._add(hint, '"[]"')
        upper = "" if high is None else str(int(high) - 1)
        body = f'{item} ("," {item}){{{max(0, low - 1)},{upper}}}'
        return self._add(hint, f'"[" {body} "]"' if low else f'"[" ({body})? "]"')

    def _string(self, schema: Mapping[str, Any], hint: str) -> str:
        form = schema.get("format")
        if form in ("date", "time", "date-time"):
            return self._library(form)
        low, high = int(schema.get("minLength", 0)), schema.get("maxLength")
        if not low and high is None:
            return self._library("string")
        if low > MAX_REPEAT or (high is not None and int(high) < low):
            raise self.refuse(f"minLength over {MAX_REPEAT} or over maxLength")
        # A longer maxLength is kept by the shorter bound: what is made still satisfies the schema.
        upper = "" if high is None else str(min(int(high), max(low, MAX_REPEAT)))
        return self._add(hint, f'"\\"" {self._library("char")}{{{low},{upper}}} "\\""')

    def _number(self, schema: Mapping[str, Any], kind: str, hint: str) -> str:
        low, high = schema.get("minimum"), schema.get("maximum")
        least = -LIMIT if low is None else math.ceil(low)
        most = LIMIT if high is None else math.floor(high)
        if "exclusiveMinimum" in schema:
            least = max(least, math.floor(schema["exclusiveMinimum"]) + 1)
        if "exclusiveMaximum" in schema:
            most = min(most, math.ceil(schema["exclusiveMaximum"]) - 1)
        if (least, most) == (-LIMIT, LIMIT):
            return self._library(kind)
        exact = whole(least, most)
        if not exact:
            raise self.refuse("a range that holds no whole number")
        if kind == "integer":
            return self._add(hint, exact)
        # A fraction keeps its sign and its whole part one short of the bound on its own side.
        parts = [exact]
        up, down = whole(max(0, least), most - 1), whole(least + 1, min(0, most))
        if up:
            parts.append(f'({up}) "." [0-9]{{1,6}}')
        if down:
            down = " | ".join(p if p.startswith('"-"') else f'"-" {p}' for p in down.split(" | "))
            parts.append(f'({down}) "." [0-9]{{1,6}}')
        return self._add(hint, " | ".join(parts))

    def _reference(self, target: Any, hint: str) -> str:
        if not isinstance(target, str) or not target.startswith("#"):
            raise self.refuse("a $ref to another document")
        if target not in self._refs:
            node: Any = self._root
            for part in target.lstrip("#").strip("/").split("/") if target not in ("#", "#/") else ():
                key = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(node, Mapping) or key not in node:
                    raise self.refuse(f"a $ref to {target!r}, which is not there")
                node = node[key]
            name = self._refs[target] = f"ref{len(self._refs)}"
            self._rules[name] = ""  # its place, so that a schema may refer to itself
            self._opened[target] = self._depth
            self._rules[name] = self.rule(node, f"{name}-x")
            del self._opened[target]
        elif self._opened.get(target) == self._depth:
            raise self.refuse(f"a $ref to {target!r} that only leads back to itself")
        return self._refs[target]

    def _only(self, schema: Mapping[str, Any], allowed: set[str] | frozenset[str]) -> None:
        for keyword in schema:
            if keyword not in allowed and keyword not in _ANNOTATIONS:
                raise self.refuse(f"{keyword!r}")

    def _add(self, name: str, body: str) -> str:
        # "root" is the start rule's own name.
        name = "all" if name == "root" else name
        self._rules[name] = body
        return name

    def _library(self, name: str) -> str:
        if name in _LIBRARY and name not in self._rules:
            self._rules[name] = _LIBRARY[name]
            for needed in _NEEDS.get(name, ()):
                self._library(needed)
        return name
