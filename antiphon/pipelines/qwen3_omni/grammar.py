"""What an answer may look like, as grammars: a tool call in the family's own form, JSON by a schema.

The family writes a call as its chat template teaches it: ``<tool_call>``, a line with one JSON object of name and arguments,
``</tool_call>``. JSON is kept in the one spacing that the template itself writes, so there is one way to say each thing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.pipelines.errors import Refused
from antiphon.pipelines.requests import ResponseFormat, Tool

BEGIN, END = "<tool_call>", "</tool_call>"
HEAD, MIDDLE, TAIL = '\n{"name": "', '", "arguments": ', "}\n"
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def call(tools: Sequence[Tool], begin: int, end: int) -> str:
    """One call of one of ``tools``; ``begin`` and ``end`` are the ids of the two marks."""
    return "start: call\n" + _call(tools, begin, end)


def formatted(wanted: ResponseFormat, tools: Sequence[Tool] = (), begin: int = -1, end: int = -1) -> str:
    """An answer in ``wanted``, or instead of it a call where ``tools`` are offered."""
    schema = wanted.schema if wanted.kind == "json_schema" else {"type": "object"}
    told = f"answer: {_json(schema)}\n"
    return "start: answer | call\n" + told + _call(tools, begin, end) if tools else "start: answer\n" + told


def name(head: str) -> str:
    """The tool's name, from what a call has said before ``MIDDLE``."""
    return str(json.loads(f'"{head.removeprefix(HEAD)}"'))


def _call(tools: Sequence[Tool], begin: int, end: int) -> str:
    lines = [
        f"call: <[{begin}]> {_literal(HEAD)} ({' | '.join(f't{i}' for i in range(len(tools)))}) {_literal(TAIL)} <[{end}]>"
    ]
    for i, tool in enumerate(tools):
        lines.append(f"t{i}: {_literal(inside(tool.name) + MIDDLE)} {_json(tool.parameters or {'type': 'object'})}")
    return "\n".join(lines)


def _json(schema: Mapping[str, Any]) -> str:
    try:
        return f"%json {json.dumps({**schema, 'x-guidance': _SPACING})}"
    except RecursionError:
        raise Refused("the schema is nested too deeply", code="invalid_schema") from None


def inside(name: str) -> str:
    """A name as it stands between the quotes of JSON."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
