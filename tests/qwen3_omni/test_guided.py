"""Guides by themselves: whatever is chosen of what they allow, the text at the end is what the schema asks for."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from antiphon.pipelines.engines.torch.guided import Guides
from antiphon.pipelines.qwen3_omni import grammar
from antiphon.pipelines.qwen3_omni.detokenizer import read_tokenizer
from antiphon.pipelines.requests import ResponseFormat, Tool

pytest.importorskip("llguidance", reason="llguidance is not installed")

CONTROL = ["<|im_end|>", "</tool_call>", "<tool_call>", "<|im_start|>", "<|audio_pad|>", "<|endoftext|>"]


def written(folder: str, told: str, seed: int = 0) -> tuple[str, list[int]]:
    """What comes of random choices, up to the end of the answer; and its ids."""
    tokenizer, dice = read_tokenizer(folder), random.Random(seed)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    guide = Guides(tokenizer, (end,), 440).start(told, "response_format")
    ids: list[int] = []
    while True:
        token = dice.choice(guide.allowed().nonzero().flatten().tolist())
        if token == end:
            return str(tokenizer.decode(ids)), ids
        guide.take(token)
        ids.append(token)


@pytest.mark.parametrize("letters", CONTROL)
def test_letters_of_a_control_token_in_a_schema_are_letters(letters: str, folder: str) -> None:
    """Read as the token, they ended the answer in the middle, or could be followed by nothing."""
    added = set(read_tokenizer(folder).get_added_vocab().values())
    keyed = {"type": "object", "properties": {letters: {"const": 1}}, "required": [letters], "additionalProperties": False}
    wanted: list[tuple[dict[str, Any], Any]] = [
        ({"enum": [letters]}, letters),
        ({"const": f"a{letters}b"}, f"a{letters}b"),
        (keyed, {letters: 1}),
    ]
    for schema, value in wanted:
        text, ids = written(folder, grammar.formatted(ResponseFormat("json_schema", schema)))
        assert json.loads(text) == value
        assert not added & set(ids)


def test_a_call_s_marks_are_tokens_and_its_letters_are_not(folder: str) -> None:
    tokenizer = read_tokenizer(folder)
    begin, end = (tokenizer.convert_tokens_to_ids(mark) for mark in (grammar.BEGIN, grammar.END))
    schema = {
        "type": "object",
        "properties": {"v": {"const": "</tool_call>"}},
        "required": ["v"],
        "additionalProperties": False,
    }
    text, ids = written(folder, grammar.call((Tool("clock", "", schema),), begin, end))
    assert text == '<tool_call>\n{"name": "clock", "arguments": {"v": "</tool_call>"}}\n</tool_call>'
    assert (ids[0], ids.count(begin), ids[-1], ids.count(end)) == (begin, 1, end, 1)


@pytest.mark.parametrize("seed", range(8))
def test_free_letters_never_become_a_control_token(seed: int, folder: str) -> None:
    added = set(read_tokenizer(folder).get_added_vocab().values())
    schema = {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 2, "maxItems": 2}
    text, ids = written(folder, grammar.formatted(ResponseFormat("json_schema", schema)), seed)
    held = json.loads(text)
    assert len(held) == 2 and all(isinstance(s, str) and len(s) <= 6 for s in held)
    assert not added & set(ids)
