"""Draws a random sentence of a GBNF grammar. Reads the notation by its own means, from llama.cpp's grammars/README.md."""

from __future__ import annotations

import random
import re
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\{[0-9]*,?[0-9]*\}|[()|*+?]|[a-zA-Z][a-zA-Z0-9-]*')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse(grammar: str) -> dict[str, Any]:
    rules = {}
    for line in grammar.splitlines():
        name, _, text = line.partition(" ::= ")
        rest = _TOKEN.sub("", text).strip()
        assert not rest, f"not GBNF: {rest!r} in {line!r}"
        tokens = _TOKEN.findall(text)
        rules[name], left = _alternatives(tokens)
        assert not left, line
    for name, rule in rules.items():
        assert all(r in rules for r in _names(rule)), f"{name} names a rule that is not there"
    return rules


def _names(node: Any) -> list[str]:
    if node[0] == "rule":
        return [node[1]]
    return (
        [n for child in node[1] if isinstance(child, tuple) for n in _names(child)] if node[0] in ("alt", "seq", "rep") else []
    )


def _alternatives(tokens: list[str]) -> tuple[Any, list[str]]:
    options, sequence = [], []
    while tokens and tokens[0] != ")":
        token, tokens = tokens[0], tokens[1:]
        if token == "|":
            options.append(("seq", sequence))
            sequence = []
        elif token == "(":
            inner, tokens = _alternatives(tokens)
            assert tokens[0] == ")"
            sequence.append(inner)
            tokens = tokens[1:]
        elif token in "*+?" or token[0] == "{":
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(token)
            if bounds is None:
                low, comma, high = token[1:-1].partition(",")
                bounds = (int(low or 0), int(high) if high else None if comma else int(low))
            sequence[-1] = ("rep", [sequence[-1]], *bounds)
        elif token[0] == '"':
            sequence.append(("text", _unescape(token[1:-1])))
        elif token[0] == "[":
            sequence.append(("class", token[1:-1]))
        else:
            sequence.append(("rule", token))
    options.append(("seq", sequence))
    return ("alt", options), tokens


def _unescape(text: str) -> str:
    out, i = "", 0
    while i < len(text):
        if text[i] != "\\":
            out += text[i]
            i += 1
        elif text[i + 1] == "x":
            out += chr(int(text[i + 2 : i + 4], 16))
            i += 4
        else:
            out += _ESCAPES.get(text[i + 1], text[i + 1])
            i += 2
    return out


_SOME = [chr(c) for c in range(0x20, 0x7F)] + list("éß語😀\u2028\n\x00\x7f")


def draw(rules: dict[str, Any], dice: random.Random, node: Any = ("rule", "root"), depth: int = 0) -> str:
    match node:
        case ("text", text):
            return str(text)
        case ("class", inside):
            negated, members = inside.startswith("^"), _unescape(inside.lstrip("^"))
            ranges = re.findall(r"(.)-(.)|(.)", members, re.S)

            def held(c: str) -> bool:
                return any(a <= c <= b if a else c == one for a, b, one in ranges)

            return dice.choice([c for c in _SOME if held(c) != negated])
        case ("rule", name):
            return draw(rules, dice, rules[name], depth + 1)
        case ("seq", parts):
            return "".join(draw(rules, dice, p, depth) for p in parts)
        case ("alt", options):
            # Deep down the last alternative: the scalars of a JSON value come last.
            return draw(rules, dice, options[-1] if depth > 24 else dice.choice(options), depth)
        case ("rep", [part], low, high):
            most = low + (0 if depth > 18 else 3) if high is None else high
            return "".join(draw(rules, dice, part, depth) for _ in range(dice.randint(low, min(most, low + 3))))
    raise AssertionError(node)
