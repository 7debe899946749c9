"""The tools of a session or a response: what may be declared and chosen."""

from __future__ import annotations

from typing import Any

from antiphon.session.checks import MAX_DESCRIPTION, Json, a_free_object, a_list, a_name, a_string, an_object, one_of, required
from antiphon.session.errors import Refused, wrong_type


def checked_tools(value: Any, param: str) -> list[Json]:
    """The list as it is to be kept; an empty one clears it."""
    return [_tool(tool, f"{param}[{i}]") for i, tool in enumerate(a_list(value, param, 1024))]


def _tool(value: Any, param: str) -> Json:
    tool = an_object(value, param)
    kind = required(tool, "type", param)
    if kind == "mcp":
        raise Refused("MCP tools are not supported by this server.", "unsupported_tool", f"{param}.type")
    one_of(kind, f"{param}.type", ("function",))
    name = a_name(required(tool, "name", param), f"{param}.name")
    kept: Json = {"type": "function", "name": name}
    if tool.get("description") is not None:
        kept["description"] = a_string(tool["description"], f"{param}.description", MAX_DESCRIPTION)
    parameters = tool.get("parameters")
    kept["parameters"] = {"type": "object", "properties": {}} if parameters is None else parameters
    a_free_object(kept["parameters"], f"{param}.parameters")
    return kept


def checked_choice(value: Any, param: str) -> str | Json:
    """``auto``, ``none``, ``required`` or one function by name."""
    if isinstance(value, str):
        return one_of(value, param, ("auto", "none", "required"))
    if not isinstance(value, dict):
        raise wrong_type(param, "one of 'auto', 'none', 'required' or an object", value)
    if required(value, "type", param) == "mcp":
        raise Refused("MCP tools are not supported by this server.", "unsupported_tool", f"{param}.type")
    one_of(value["type"], f"{param}.type", ("function",))
    nested = value.get("function")
    inner = nested if isinstance(nested, dict) else value
    name = a_name(required(inner, "name", param), f"{param}.name")
    return {"type": "function", "name": name}


def choice_in_force(choice: str | Json, tools: list[Json]) -> str | Json:
    """A client may name a function, or require any, before it declares one (two session updates); until then the model
    is free."""
    named = choice["name"] if isinstance(choice, dict) else None
    if not tools or (named is not None and named not in [tool["name"] for tool in tools]):
        return "auto"
    return choice
