"""What an answer may look like, told to SGLang: the grammars of ``grammar`` as structural tags of xgrammar, its usual backend.

A call's own form is the family's; the white space of JSON is the writer's. These forms are known to SGLang since 0.5.10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.pipelines.qwen3_omni import grammar
from antiphon.pipelines.requests import GenerateRequest, ResponseFormat, Tool


def constraint(body: GenerateRequest, offered: Sequence[Tool]) -> dict[str, str]:
    """Of SGLang's ``sampling_params``, what keeps the answer to the request; {} where it is free. A call that is forced has
    been begun in the prompt: what follows its mark is kept here."""
    wanted = body.response_format
    if offered and forced(body):
        return _tag({"type": "or", "elements": [_call(tool, begin="") for tool in offered]})
    if wanted.kind != "text" and not offered:
        return {"json_schema": json.dumps(_schema(wanted))}
    if wanted.kind != "text":
        # One call: xgrammar before 0.2 knows no choice between JSON and something without an end.
        return _tag({"type": "or", "elements": [_json(_schema(wanted)), *map(_call, offered)]})
    if not offered:
        return {}
    return _tag(
        {
            "type": "triggered_tags",
            "triggers": [grammar.BEGIN],
            "tags": [_call(tool) for tool in offered],
            "stop_after_first": not body.parallel_tool_calls,
        }
    )


def forced(body: GenerateRequest) -> bool:
    return body.tool_choice.mode in ("required", "function")


def _schema(wanted: ResponseFormat) -> Mapping[str, Any]:
    return wanted.schema if wanted.kind == "json_schema" else {"type": "object"}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def _call(tool: Tool, begin: str = grammar.BEGIN) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": f"{begin}{grammar.HEAD}{grammar.inside(tool.name)}{grammar.MIDDLE}",
        "content": _json(tool.parameters or {"type": "object"}),
        "end": f"{grammar.TAIL}{grammar.END}",
    }


def _tag(form: dict[str, Any]) -> dict[str, str]:
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}
