"""``turn_detection`` of the session object: the two kinds, their defaults, and the merge of a change."""

from __future__ import annotations

from typing import Any

from antiphon.session.checks import Json, a_bool, a_number, an_int, an_object, one_of

SERVER_VAD: Json = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
SEMANTIC_VAD: Json = {"type": "semantic_vad", "eagerness": "auto", "create_response": True, "interrupt_response": True}
PREFIX_PADDING_MS = 300
"""What semantic_vad, which has no such field, keeps before the first voiced sample."""


def merged_detection(old: Json | None, patch: Any, param: str) -> Json | None:
    """Fields of the same kind stay, those of the other kind start from its defaults; ``none`` is the older null."""
    if patch is None or (isinstance(patch, dict) and patch.get("type") == "none"):
        return None
    patch = an_object(patch, param)
    kind = patch.get("type") or (old or SERVER_VAD)["type"]
    one_of(kind, f"{param}.type", ("server_vad", "semantic_vad"))
    new = dict(SERVER_VAD if kind == "server_vad" else SEMANTIC_VAD)
    if old and old["type"] == kind:
        new.update(old)
    given = {key: value for key, value in patch.items() if value is not None and key in new}
    for key in ("create_response", "interrupt_response"):
        if key in given:
            new[key] = a_bool(given[key], f"{param}.{key}")
    if "threshold" in given:
        new["threshold"] = a_number(given["threshold"], f"{param}.threshold", 0.0, 1.0)
    if "prefix_padding_ms" in given:
        new["prefix_padding_ms"] = an_int(given["prefix_padding_ms"], f"{param}.prefix_padding_ms", 0, 2_000)
    if "silence_duration_ms" in given:
        new["silence_duration_ms"] = an_int(given["silence_duration_ms"], f"{param}.silence_duration_ms", 0, 10_000)
    if "eagerness" in given:
        new["eagerness"] = one_of(given["eagerness"], f"{param}.eagerness", ("low", "medium", "high", "auto"))
    if "idle_timeout_ms" in given:
        new["idle_timeout_ms"] = an_int(given["idle_timeout_ms"], f"{param}.idle_timeout_ms", 5_000, 30_000)
    elif "idle_timeout_ms" in patch and "idle_timeout_ms" in new:
        new["idle_timeout_ms"] = None
    return new
