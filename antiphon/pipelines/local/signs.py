"""Operators, file names, Greek letters and words whose letters mislead: what is said in their place."""

from __future__ import annotations

import re
import unicodedata

from antiphon.pipelines.local.aligned import Aligned, Piece

_OPERATORS = {
    "===": "equals", "==": "equals", "!==": "is not", "!=": "is not", "<=": "at most", ">=": "at least", "=>": "to", "->": "to",
    "-->": "to", "+=": "plus equals", "-=": "minus equals", "&&": "and", "||": "or", "‰": "per mille", "№": "number",
}  # fmt: skip
_OPERATOR = re.compile(
    "(?<![=<>!+&|-]) ?(" + "|".join(re.escape(sign) for sign in sorted(_OPERATORS, key=len, reverse=True)) + ") ?(?![=<>&|-])"
)
_MATH = re.compile(r"\${1,2}(?=[^\s$\d])([^$\n]*[=^_\\][^$\n]*)\${1,2}(?!\d)|\\[()\[\]]")
_OVER = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\{([^{}]*)\}")
_COMMAND = re.compile(r"\\(times|cdot|div|pm|approx|leq?|geq?|neq?|pi|infty|text|left|right|quad)(?![A-Za-z])")
_COMMANDS = {
    "times": "times", "cdot": "times", "div": "divided by", "pm": "plus or minus", "approx": "about", "le": "at most",
    "leq": "at most", "ge": "at least", "geq": "at least", "ne": "is not", "neq": "is not", "pi": "pi", "infty": "infinity",
}  # fmt: skip
_SPACED_SLASH = re.compile(r"(?<=[A-Za-z)]) / (?=[A-Za-z(])")
_VARIABLES = r"(?<!\b[a-z] - (?=\d|[a-z]\b))(?<!\d - (?=[b-z]\b))"  # "x - 1", "5 - x": a difference
_DASH = re.compile(rf"(?<=[^\s\d]) --? (?=\S){_VARIABLES}|(?<=\S) --? (?=[^\s\d-]){_VARIABLES}|(?<=[A-Za-z])--(?=[A-Za-z])")
_FILE = re.compile(r"(?<![\w./@-])[A-Za-z_][\w-]*\w(?:\.[a-z][a-z0-9]+(?:_\w+)?)+(?![\w@])(?=[^.]|\.?$|\.\s)")
_SITE = re.compile(r"(?<![\w./@-])[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|dev|ai|edu|gov|co|uk|de)/[\w./~-]*[\w/]")
_HIDDEN = re.compile(r"(?<![\w.)\"'])\.(?=[a-z]{2}|NET\b)")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_LOWERED = re.compile("[₀-₉]+")
_GREEK = re.compile("(?<![\u0370-\u03ff\u1f00-\u1fff])[Α-ΡΣ-Ωα-ω](?![\u0370-\u03ff\u1f00-\u1fff])")
_ROMAN = re.compile(r"(?<=\b)([IVX]{2,5})(?= centur(?:y|ies)\b)")
_NUMBERED = re.compile(
    r"\b(Figure|Table|Appendix|Title|Unit|Tier|Group|Category|Division|Amendment|Vatican|Mark) ([IVX]{1,5})\b"
)
_SHORT = {
    "p": "page", "ext": "extension", "Ext": "Extension", "min": "minimum", "max": "maximum", "Sec": "Section", "sec": "section",
    "Eq": "Equation", "eq": "equation", "tel": "telephone", "Tel": "Telephone", "c": "circa", "ca": "circa",
    "para": "paragraph",
}  # fmt: skip
_NUMBER_SHORT = re.compile(rf"(?<![\w.])({'|'.join(_SHORT)})\. ?(?=\d)")
_TERMS = {
    "JSON": "Jason", "YAML": "yammel", "CUDA": "kooda", "ONNX": "onyx", "AWS": "A.W.S", "README": "read me",
    "CO2": "C O 2",
}  # fmt: skip
_STRESSED = re.compile(
    r"(?<![\w./'’&-])(?:HE|SHE|HIS|HIM|MY|THEIR|THEM|THIS|THESE|SOME|WAS|WERE|BEEN|HAVE|HAS|HAD|WILL|WOULD|COULD|CAN|GO|BUT|IF|WHEN"
    r"|WHICH|THAN|WITH|ON|AT|BY|(?:DO|DOES|DID|IS|ARE|WAS|WERE|HAS|HAVE|HAD|CA|WO|WOULD|COULD|SHOULD|MUST)N['’]T)(?![\w./'’&-]\w|\w)"
)
"""Capitals for stress ("You HAVE to"): the voice would spell the ones that it does not know as words."""
_TERM = re.compile(rf"(?<![\w./-])({'|'.join(_TERMS)})(?!\w)")


def read_math(text: Aligned) -> Aligned:
    """LaTeX as a model writes it, before markdown takes its backslashes and braces."""
    if "\\" not in text.text and "$" not in text.text:
        return text
    text = text.sub(_MATH, lambda m: (1,) if m[1] else ()).sub(_OVER, (1, " over ", 2)).sub(_ROOT, ("root of ", 1))
    return text.sub(_COMMAND, lambda m: (f" {_COMMANDS.get(m[1], '')} ",))


def read_signs(text: Aligned) -> Aligned:
    """Operators, dashes and names with dots: before numbers are looked at."""
    text = text.sub(_LOWERED, lambda m: (m[0].translate(_SUBSCRIPTS),))
    text = text.sub(_SITE, _site).sub(_FILE, lambda m: (m[0].replace(".", " dot "),)).sub(_HIDDEN, "dot ")
    text = text.sub(_OPERATOR, lambda m: (f" {_OPERATORS[m[1]]} ",)).sub(_SPACED_SLASH, " slash ")
    return text.sub(_DASH, " — ")


def read_words(text: Aligned) -> Aligned:
    """Greek letters, numerals, short forms, capitals: after units ("5 μm") have been read."""
    text = text.sub(_GREEK, _greek).sub(_NUMBER_SHORT, lambda m: (_SHORT[m[1]] + " ",))
    text = text.sub(_ROMAN, lambda m: (_ordinal(m[1]),)).sub(_NUMBERED, lambda m: (1, f" {_roman(m[2])}"))
    if not text.text.isupper():
        text = text.sub(_STRESSED, lambda m: (m[0].lower(),))
    return text.sub(_TERM, lambda m: (_TERMS[m[1]],))


def _site(match: re.Match[str]) -> tuple[Piece, ...]:
    return (match[0].replace(".", " dot ").replace("/", " slash "),)


def _greek(match: re.Match[str]) -> tuple[Piece, ...]:
    name = unicodedata.name(match[0]).rsplit(maxsplit=1)[1].lower()
    return (f" {name.replace('lamda', 'lambda')} ",)


def _roman(numeral: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10}[letter] for letter in numeral]
    following = (*values[1:], 0)
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _ordinal(numeral: str) -> str:
    number = _roman(numeral)
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
