"""Text as it is written -> text as it is said, every word with its place in the source.

Here goes what a normaliser of plain English does not know: markdown, tables, code, links, addresses, emoji, and numbers
and money as they are written elsewhere. What hibari's own normaliser reads well (3.14, 10:30, $1.50, dates, "Dr. Smith",
common units) is left to it; what it misreads is rewritten in figures.py, quantities.py and signs.py.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass

from antiphon.pipelines.local.aligned import Aligned, Piece
from antiphon.pipelines.local.figures import read_figures
from antiphon.pipelines.local.quantities import read_quantities
from antiphon.pipelines.local.signs import read_math, read_signs, read_words

CODE_BLOCK = "Here is some code."
"""What is said in place of a fenced block of code, which nobody wants spelled."""

LIST_MARK = re.compile(r"[ \t]*(?:[-*+•‣◦–][ \t]+(?:\[[ xX]\][ \t]+)?)")
NUMBER_MARK = re.compile(r"[ \t]*\d{1,3}[.)][ \t]+")
QUOTE_MARK = re.compile(r"[ \t]*>[ \t]?")
HEADING_MARK = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+")
TABLE_ROW = re.compile(r"[ \t]*\|")

_RULE = re.compile(r"[ \t]*(?:([-*_=])[ \t]*)(?:\1[ \t]*){2,}$")
_TABLE_LINE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)+$")

_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"]*\")?\)")
_REFERENCE = re.compile(r"\[\^[\w-]+\]|\[(\d{1,3})\](?!\w)")
_ANGLE_LINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|<!--.*?-->")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});")
_CODE = re.compile(r"(`+)([^`]+)\1")
_STARS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|\*{2,}|__|~~|`+")
_TIMES = re.compile(r"(?<=\d)[ ]?[*×·][ ]?(?=\d)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|~<>$-])")

_EMAIL = re.compile(r"(?:mailto:)?\b([\w.+-]+@[\w-]+(?:\.[\w-]+)+)\b", re.A)
_URL = re.compile(r"\b(?:https?://|ftp://|www\.)[^\s<>\"“”]*[^\s<>\"“”.,;:!?)\]}'’]", re.I)
_DOTTED = re.compile(r"(?<![\w.,])(?:[vV](?=\d))?(\d{1,5})((?:\.\d{1,5}){2,})(?![\w,]|\.\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\w.,])(\d+),(\d{1,2})(?![\w,]|\.\d)")
_MONEY_AFTER = re.compile(r"(?<![\w.,$€£])(\d[\d.,]*\d|\d)[ ]?([€£$¥])(?!\w|\d)")
_SHARP = re.compile(r"\b([CFcf])#(?!\w)")
_SQUARED = re.compile(r"(?<=\b[kcm]m)²")
_BRACKETS = re.compile(r"[\[\]{}]")
_ODD_SPACE = re.compile(r"[\u00a0\u2000-\u200a\u202f\u205f\u3000\t\r\f\v\n]+")
_ODD_HYPHEN = re.compile("[\u2010\u2011]")
_ODD_DIGIT = re.compile(r"(?![0-9])\d")
_MINUS = re.compile("\u2212")
_KEYCAP = re.compile("([0-9#*])\ufe0f?\u20e3")
_REPEATED = re.compile(r"([!?,;:])\1+|\.{4,}")
_NO_WORD = re.compile(r"(?:^|(?<=\s))[^\w\s€£$¥%&@]+(?=\s|$)")
_LOOSE = re.compile(r"(?<=\w)\s+([,.;:!?…]+)(?=\s|$)")
_SPOKEN_END = re.compile(r"[.!?…,;:—][\"”’')\]]*$")

_MONEY = {"€": "euros", "£": "pounds", "$": "dollars", "¥": "yen"}
_KEPT_SYMBOLS = frozenset("°€£$¥¢§±×÷=<>~+|^#%&@©®™½¼¾²³→←≈≤≥≠√∞`")
_WORDED = {"≈": " about ", "≤": " at most ", "≥": " at least ", "≠": " is not ", "√": " root of ", "∞": " infinity "}
_WORDED_RE = re.compile("[" + "".join(_WORDED) + "]")


@dataclass(frozen=True, slots=True)
class Speakable:
    """What is said, and for each of its whitespace-separated words the source offset at which it has been said."""

    text: str
    word_ends: tuple[int, ...]


def speakable(source: str, at: int = 0, *, line_start: bool = True, line_end: bool = False) -> Speakable | None:
    """``source`` (a clause; no fenced code) lies at offset ``at``; None when there is nothing in it to say.

    ``line_start``/``line_end``: the source begins or ends a line of its own (a heading, a list item, a table's row):
    line marks are only looked for at the start of a line, and a line of its own ends like a sentence.
    """
    lines = Aligned.of(source, at)
    lines = _strip_line_marks(lines, line_start)
    text = _strip_inline_marks(lines)
    text = _read_addresses(text).sub(_ODD_SPACE, " ").sub(_ODD_HYPHEN, "-")
    text = text.sub(_ODD_DIGIT, lambda match: (str(unicodedata.decimal(match.group())),))
    text = _read_numbers(read_figures(read_words(read_quantities(read_signs(text)))))
    text = _drop_symbols(text)
    words = list(text.words())
    if not any(character.isalnum() for word, _ in words for character in word):
        return None
    spoken = " ".join(word for word, _ in words)
    if not _SPOKEN_END.search(spoken):
        spoken += "." if line_end else ","
    return Speakable(spoken, tuple(end for _, end in words))


def _strip_line_marks(text: Aligned, line_start: bool) -> Aligned:
    def strip(match: re.Match[str]) -> tuple[Piece, ...]:
        line = match.group()
        if match.start() == 0 and not line_start:
            return (0,)
        if _RULE.match(line) or _TABLE_LINE.match(line):
            return ()
        return (0,)

    text = text.sub(re.compile(r"[^\n]+"), strip)
    for mark in (QUOTE_MARK, HEADING_MARK, LIST_MARK):
        at_start = re.compile((r"(?:^|(?<=\n))" if line_start else r"(?<=\n)") + mark.pattern)
        text = text.sub(at_start, "")
    text = text.sub(re.compile(r"[ \t]+#+[ \t]*(?=\n|$)"), "")
    row = re.compile((r"(?:^|(?<=\n))" if line_start else r"(?<=\n)") + r"[ \t]*\|([^\n]*?)\|?[ \t]*(?=\n|$)")
    if row.search(text.text):
        text = text.sub(row, (1,)).sub(re.compile(r"[ \t]*\|[ \t]*"), ", ")
        text = text.sub(re.compile(r"(?:, )+(?=, )|^\s*, |, $"), "")
    return text


def _strip_inline_marks(text: Aligned) -> Aligned:
    text = read_math(text).sub(_ANGLE_LINK, (1,)).sub(_IMAGE_OR_LINK, (1,)).sub(_REFERENCE, "").sub(_TAG, " ")
    text = text.sub(_ENTITY, lambda match: (html.unescape(match.group()),))
    text = text.sub(_CODE, (2,)).sub(_ESCAPE, (1,))
    return text.sub(_TIMES, " times ").sub(_STARS, "").sub(_BRACKETS, " ")


def _read_addresses(text: Aligned) -> Aligned:
    def url(match: re.Match[str]) -> tuple[Piece, ...]:
        address = re.sub(r"^(?:https?|ftp)://", "", match.group(), flags=re.I)
        host, *path = re.split(r"[?#]", address)[0].split("/")
        host = re.sub(r"^www\.|:\d+$|^[^@]*@", "", host, flags=re.I)
        parts = [part for part in path if part][:3]
        spoken = [_spell(host), *(_spell(re.sub(r"%[0-9A-Fa-f]{2}|[-_+~=]+", " ", part)) for part in parts)]
        return (" slash ".join(part for part in spoken if part),)

    def mail(match: re.Match[str]) -> tuple[Piece, ...]:
        return (" at ".join(_spell(part) for part in match.group(1).split("@")),)

    return text.sub(_URL, url).sub(_EMAIL, mail)


def _spell(name: str) -> str:
    """``john.doe`` -> ``john dot doe``; single letters are named, not read as the article."""
    signs = {".": " dot ", "-": " dash ", "_": " underscore ", "+": " plus "}
    spaced = "".join(signs.get(character, character) for character in name)
    return " ".join(word.upper() if len(word) == 1 else word for word in spaced.split())


def _read_numbers(text: Aligned) -> Aligned:
    def dotted(match: re.Match[str]) -> tuple[Piece, ...]:
        groups = match.group().split(".")
        if all(len(group) == 3 for group in groups[1:]) and len(groups[0]) <= 3:
            return (",".join(groups),)  # 1.000.000: dots between thousands
        return (" dot ".join(groups),)  # an address or a version

    def money(match: re.Match[str]) -> tuple[Piece, ...]:
        word = _MONEY[match.group(2)]
        return (1, " " + (word.rstrip("s") if match.group(1) == "1" else word))

    text = text.sub(_MINUS, "-").sub(_KEYCAP, (1,))
    text = text.sub(_DOTTED, dotted).sub(_DECIMAL_COMMA, (1, ".", 2)).sub(_MONEY_AFTER, money)
    text = text.sub(_SQUARED, " squared").sub(_SHARP, (1, " sharp"))
    return text.sub(_WORDED_RE, lambda match: (_WORDED[match.group()],))


def _drop_symbols(text: Aligned) -> Aligned:
    if not text.text.isascii():
        silent = {character for character in set(text.text) if _is_silent(character)}
        if silent:
            text = text.sub(re.compile("[" + re.escape("".join(sorted(silent))) + "]"), "")
    text = text.sub(_LOOSE, (1,))
    return text.sub(_REPEATED, lambda match: (match.group()[0] if match.group()[0] != "." else "…",)).sub(_NO_WORD, _alone)


def _alone(match: re.Match[str]) -> tuple[Piece, ...]:
    """Signs that stand alone: a dash or an arithmetic sign is said or paused at, the rest is dropped."""
    return (0,) if match.group() in {"—", "–", "-", "=", "+", "<", ">", "×", "÷", "…", "±", "→", "§", "©"} else ()


def _is_silent(character: str) -> bool:
    """Emoji and their joiners, pictures, control characters; not the signs that are read as words."""
    if character in _KEPT_SYMBOLS:
        return False
    return unicodedata.category(character) in {"So", "Sk", "Cs", "Co", "Cn", "Cf", "Cc", "Me"} or character in "\ufe0f\ufe0e"


def foreign_script(text: str) -> str:
    """The script that a text is written in when no letter of it is Latin ("Cyrillic", "Cjk"), else ""."""
    letters = [character for character in text if character.isalpha()]
    if not letters or any(unicodedata.name(letter, "").startswith("LATIN") for letter in letters):
        return ""
    return unicodedata.name(letters[0], "unknown").split()[0].title()
