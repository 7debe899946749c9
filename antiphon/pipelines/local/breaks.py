"""Where English text may part: sentence ends, phrases, abbreviations, and what must stay whole.

Pure functions over a window of text. Those that need to look on answer None while what they need is not there; ``whole``
says that the window ends where the text ends.
"""

from __future__ import annotations

import re

from antiphon.pipelines.local.speakable import HEADING_MARK, LIST_MARK, NUMBER_MARK, QUOTE_MARK, TABLE_ROW

LOOK = 12
"""Characters after a cut that may still change it."""
BRACKET = 240
"""A link or a piece of code is not cut when it closes within so many characters."""

_CAPITALISED = (
    "Mr Mrs Ms Dr Prof St Mt Ft Gen Gov Sen Rep Capt Lt Col Sgt Cmdr Rev Hon Pres Supt Cpl Maj Adm Fr Msgr Jr Sr Ave Blvd Rd"
    " Ln Hwy Drs Apt Bldg Ltd Inc Corp Co Bros Dept Univ Assn Govt Fig Vol Ch Ed No Nos Tel Ph.D B.Sc M.Sc"
    " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thurs Fri Sat Sun"
)
_SMALL = "vs approx est vol pp eds nos cf al govt dept e.g i.e a.m p.m ca"
ABBREVIATIONS = frozenset(_CAPITALISED.split()) | frozenset(_SMALL.split())
"""As they are written: "Sat." is a day, "sat." ends a sentence."""
NUMBERED = frozenset(["no", "nos", "p", "pp", "ext", "tel", "min", "max", "sec", "eq", "c", "para", "art"])
"""A full stop after one of these ends a sentence unless a number follows ("p. 12", "Wait a sec. Then")."""
PHRASE = re.compile(r"\s(?=(?:and|but|or|because|which|that|where|when|while|with|if|so|as|for|than|before|after|then)\s)")


def is_marked(line: str) -> bool:
    """Does a line begin with a mark of its own: a list item, a heading, a quote, a table's row?"""
    return any(mark.match(line) for mark in (LIST_MARK, NUMBER_MARK, QUOTE_MARK, HEADING_MARK, TABLE_ROW))


def _word_before(text: str, end: int) -> str:
    start = max(text.rfind(blank, 0, end) for blank in " \n\t—") + 1
    return text[start:end].lstrip("([{\"'“‘*_")


def is_abbreviation(text: str, dot: int) -> bool:
    word = _word_before(text, dot)
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or word in ABBREVIATIONS or bool(re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]", word))


def may_part(text: str, blank: int) -> bool:
    """May a clause end before this blank? Not between a number and what it counts, nor after an abbreviation."""
    before = text[:blank].rstrip()
    if before[-1:].isdigit() or before[-1:] in "€$£¥#+-=×÷/@&":
        return False
    return not (before.endswith(".") and is_abbreviation(before, len(before) - 1))


def begins_phrase(text: str, blank: int, whole: bool) -> bool | None:
    """Is this blank in front of a word that begins a phrase ("and", "with")? None: the word is not there yet."""
    if not whole and blank + LOOK > len(text) and len(text[blank:].split(maxsplit=1)) < 2:
        return None
    return bool(PHRASE.match(text, blank)) and may_part(text, blank)


def ends_sentence(text: str, start: int, end: int, whole: bool) -> bool | None:
    """Do the marks ``text[start:end]`` end a sentence? None: cannot be told before more text is there."""
    if end >= len(text):
        return True if whole else None
    if not text[end].isspace():
        return False
    following = text[end : end + LOOK].lstrip(" \t")
    if not following:
        return True if whole or end + LOOK <= len(text) else None
    if text[start:end].startswith(".") and not text[start:end].startswith(".."):
        word = _word_before(text, start)
        if word.lower() in NUMBERED:
            return not following[0].isdigit()
        if is_abbreviation(text, start):
            return following[0] == "\n"
    return following[0] == "\n" or not following[0].islower()


def bracket_end(text: str, start: int, whole: bool) -> int | None:
    """Where a link ``[..](..)`` or a piece of code that opens at ``start`` ends; ``start`` if it never closes."""
    stop = min(len(text), start + BRACKET)
    line = text.find("\n", start, stop)
    known = whole or line >= 0 or stop == start + BRACKET
    stop = stop if line < 0 else line
    closing = text.find("]" if text[start] == "[" else "`", start + 1, stop)
    if closing < 0:
        return start if known else None
    if text[start] == "`":
        return closing + 1
    if closing + 1 >= len(text):
        return closing + 1 if whole else None
    if text[closing + 1] != "(":
        return closing + 1
    closing = text.find(")", closing + 2, stop)
    if closing < 0:
        return start if known else None
    return closing + 1
