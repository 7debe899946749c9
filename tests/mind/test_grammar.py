"""Whatever a grammar of ours lets through parses and satisfies its schema; what it cannot promise is refused by name."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipelines.engines.llama_cpp import grammar
from antiphon.pipelines.engines.llama_cpp.number_rules import whole
from antiphon.pipelines.errors import Refused
from tests.mind.gbnf import draw, parse
from tests.mind.schema_check import valid

_name = st.text(alphabet='ab "\\é', min_size=1, max_size=3)
_small = st.integers(-120, 1200)
_scalars: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"}]),
    st.builds(lambda v: {"enum": v}, st.lists(st.one_of(_name, _small, st.none(), st.booleans()), min_size=1, max_size=3)),
    st.builds(lambda v: {"const": v}, st.one_of(_name, _small)),
    st.builds(lambda a, n: {"type": "string", "minLength": a, "maxLength": a + n}, st.integers(0, 3), st.integers(0, 3)),
    st.builds(lambda a, n: {"type": "integer", "minimum": a, "maximum": a + n}, _small, st.integers(0, 2000)),
    st.builds(lambda a: {"type": "integer", "exclusiveMinimum": a}, _small),
    st.builds(lambda a, n: {"type": "number", "minimum": a, "maximum": a + n}, _small, st.integers(1, 2000)),
    st.builds(lambda a: {"type": ["string", "null"], "minLength": a}, st.integers(0, 2)),
)


def _objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def build(properties: dict[str, Any], needed: set[int]) -> dict[str, Any]:
        required = [n for i, n in enumerate(properties) if i in needed]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    return st.one_of(
        st.builds(build, st.dictionaries(_name, parts, min_size=1, max_size=4), st.sets(st.integers(0, 3))),
        st.builds(
            lambda s, a, n: {"type": "array", "items": s, "minItems": a, "maxItems": a + n},
            parts,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(lambda s: {"type": "array", "items": s}, parts),
        st.builds(lambda s: {"type": "object", "additionalProperties": s}, parts),
        st.builds(lambda s: {"anyOf": s}, st.lists(parts, min_size=1, max_size=3)),
    )


schemas = st.recursive(_scalars, _objects, max_leaves=6)


@given(schemas, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_every_sentence_satisfies_its_schema(schema: dict[str, Any], seed: int) -> None:
    rules = parse(grammar.from_schema(schema))
    dice = random.Random(seed)
    for _ in range(5):
        sentence = draw(rules, dice)
        assert valid(json.loads(sentence), schema), sentence


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_json_object_is_an_object_without_free_blanks(seed: int) -> None:
    sentence = draw(parse(grammar.json_object()), random.Random(seed))
    value = json.loads(sentence)
    assert isinstance(value, dict)
    assert not re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", sentence))


@given(st.integers(-3000, 3000), st.integers(0, 5000))
@settings(max_examples=100, deadline=None)
def test_whole_numbers_are_exactly_the_range(low: int, width: int) -> None:
    """Oracle: the rule read as a regular expression, tried on every number around the range."""
    pattern = re.compile(re.sub(r'[" ]', "", whole(low, low + width)))
    for n in [*range(low - 12, low + 12), *range(low + width - 12, low + width + 12), low * 10, low + width // 2, 0]:
        assert bool(pattern.fullmatch(str(n))) == (low <= n <= low + width), n
    assert not pattern.fullmatch("-0") and not pattern.fullmatch("007")


def test_a_tool_without_arguments_is_called_without() -> None:
    """How clients write one: livekit and pipecat send empty properties, others say that there are no more."""
    for more in ({}, {"required": []}, {"additionalProperties": False}):
        rules = parse(grammar.from_schema({"type": "object", "properties": {}, **more}, "tools"))
        assert {draw(rules, random.Random(seed)) for seed in range(20)} == {"{}"}


def test_a_schema_that_refers_to_itself() -> None:
    tree = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["v", "next"],
    }
    rules = parse(grammar.from_schema(tree))
    for seed in range(20):
        assert valid(json.loads(draw(rules, random.Random(seed))), tree)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "pattern": "^a+$"}, "pattern"),
        ({"type": "array", "items": {}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "integer", "multipleOf": 3}, "multipleOf"),
        ({"allOf": [{"type": "object"}]}, "allOf"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "no whole number"),
        ({"type": "object", "properties": {}, "required": ["x"]}, "'x'"),
        ({"$ref": "http://elsewhere/x"}, "another document"),
        ({"$ref": "#/$defs/no"}, "not there"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "back to itself"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}, "back to itself"),
        ({"type": "money"}, "money"),
        ({"enum": []}, "empty enum"),
    ],
)
def test_what_a_grammar_cannot_keep_is_refused_by_name(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused, match=re.escape(named)) as refused:
        grammar.from_schema(schema, "tools")
    assert refused.value.param == "tools"
