"""Numbers as a person says them: telephone numbers, dates, ranges, differences, fractions, ratios, decimals.

hibari's own normaliser knows several of these, but not where a full stop follows ("Call 555-1234." was read as five
hundred and fifty-five, twelve, thirty-four), and each end of a clause here has one. What it reads well is left to it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from antiphon.pipelines.local.aligned import Aligned, Piece

NUM: Final = r"\d+(?:,\d{3})*(?:\.\d+)?"
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = {name[:3]: name for name in (*_MONTHS, *_DAYS)} | {"Sept": "September", "Tues": "Tuesday", "Thurs": "Thursday"}
_LONG = {name: name for name in (*_MONTHS, *_DAYS)}
_PARTS = {
    2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth", 10: "tenth",
    12: "twelfth", 16: "sixteenth", 20: "twentieth", 32: "thirty-second", 64: "sixty-fourth", 100: "hundredth",
}  # fmt: skip

_BEFORE = r"(?<![\w.,:/$€£+-])"
_AFTER = r"(?![\w/-]|[.,:]\d)"
_PHONE = re.compile(
    r"(?<![\w.,:/$€£+-])(?:\+\d(?:[ .-]?\(?\d{1,5}\)?){2,6}"
    r"|(?:1[ .-])?\(\d{3}\)[ .-]?\d{3}[ .-]\d{4}|(?:1[ .-])?\d{3}(?P<gap>[ .-])\d{3}(?P=gap)\d{4}|\d{3}-\d{4}"
    r"|0\d{2,4}(?: \d{2,4}){1,3}|\d{4}(?: \d{4}){2,3}|(?!\d{4}-\d\d-\d\d(?!-))\d+(?:-\d+){2,})" + _AFTER
)
_EMERGENCY = re.compile(r"(?<=\b[Cc]all )(?:911|999|112|988)\b|(?<=\b[Dd]ial )(?:911|999|112|988)\b")
_LEADING_ZERO = re.compile(_BEFORE + r"0\d+" + _AFTER)

_STAMP = re.compile(r"(?<=\d\d\d\d-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?!\w)")
_DAY_FIRST = re.compile(_BEFORE + r"(\d{1,2})\.(\d{1,2})\.((?:19|20)\d\d)" + _AFTER)
_YEAR_FIRST = re.compile(_BEFORE + r"((?:19|20)\d\d)/(\d{1,2})/(\d{1,2})" + _AFTER)
_YEAR_LAST = re.compile(_BEFORE + r"(\d{1,2})-(\d{1,2})-((?:19|20)\d\d)" + _AFTER)
_MONTH_YEAR = re.compile(r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?(?= \d{4}\b)")
_WEEKDAY = re.compile(r"\b(Mon|Tues?|Wed|Thu|Thurs|Fri|Sat|Sun)\.?(?=,? \d|, (?:" + "|".join(_SHORT) + r")\b)")
_named = "|".join(sorted({**_SHORT, **_LONG}, key=len, reverse=True))
_NAMED_RANGE = re.compile(rf"\b({_named})\.? ?[-–] ?({_named})\b\.?")
_month = "|".join((*_MONTHS, "Jan", "Feb", "Aug", "Sept", "Oct", "Nov", "Dec"))
_MONTH_DAYS = re.compile(rf"\b((?:{_month})\.? \d{{1,2}})[-–](\d{{1,2}})(?![\w:-]|[.,]\d)")
_MONTH_DAY_ON = re.compile(rf"\b((?:{_month})\.? \d{{1,2}})[-–](?=(?:{_month})\b)")
_ORDINAL_RANGE = re.compile(r"\b(\d+(?:st|nd|rd|th|s))[-–](?=\d+(?:st|nd|rd|th|s)\b)")
_THOUSANDS = re.compile(r"(?<![\w.,+-])\d{1,3}(?:(?: \d{3})* 000|(?:['’]\d{3})+|\.000)(?![\w,]|\.\d| \d)")

_clock = r"\d{1,2}(?::\d\d)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
_CLOCKS = re.compile(rf"(?<![\w.:/-])({_clock}) ?[-–] ?({_clock})(?![\w:-])")
_HALF_DAY = re.compile(r"(?<=\d) ?([ap])m\b")
_POINT_CLOCK = re.compile(r"(?<![\w.])(\d{1,2})\.([0-5]\d)(?= ?[ap]\.?m\b)")
_RANGE = re.compile(
    rf"(?<![\w.,/:$€£–-])(?P<unit>[$€£]?)(?P<first>{NUM})(?P<mark>%|°[CF]?|[kKM](?=[-–]))?"
    rf"(?P<dash> ?[-–] ?)(?P<last>[$€£]?{NUM})(?![\d/]|[.,:]\d|[-–]\w| [-–]\d)"
)
_MINUS_SIGN = re.compile(
    r"(?<=[\w)])[ ]?−[ ]?(?=[\w(−-])|(?<=[\d)]) - (?=-\d)|(?<=\b[a-z]) - (?=\d|[a-z]\b)|(?<=\d) - (?=[b-z]\b)"
)
_FRACTION = re.compile(r"(?<![\w./,$€£-])(?:(\d{1,3})[ -](?=\d{1,2}/\d{1,3}\b))?(\d{1,4})( ?/ ?)(\d{1,4})(?![\w/]|[.,]\d)")
_FRACTION_RANGE = re.compile(r"(?<![\w./])(\d{1,2}/\d{1,2})[-–](?=\d{1,2}/\d{1,2}(?!\w))")
_VULGAR = re.compile("(?:(\\d+)[ ]?)?([½¼¾⅐-⅞])")
_RATIO = re.compile(r"(?<![\w.:,])(\d{1,4}):(\d{1,4})(?![\w:-]|\.\d)")
_NAMED_DECIMAL = re.compile(r"(?:(?<=[A-Za-z])|(?<=[A-Za-z]-))(\d+)\.(\d+)(?!\.?\d)")
_ROUND_DECIMAL = re.compile(r"(?<![\w.,$€£¥₹₩])(\d+)\.(\d{0,8}0)(?![\w,]|\.\d)")
_EUROPEAN = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d{3})+),(\d{1,2})(?![\w,]|\.\d)")
_EXPONENT = re.compile(rf"(?<![\w.])({NUM})[eE]([+-]?\d{{1,3}})(?!\w)")
_POWER = re.compile("(?<=[\\w)])(⁻?)([⁰¹²³⁴-⁹]+)")
_CARET = re.compile(r"(?<=[\w)])\^([23])(?![\d.])")


def read_figures(text: Aligned) -> Aligned:
    """Rewrites what hibari's normaliser would misread; odd hyphens and blanks must still be as they were written."""
    text = text.sub(_STAMP, (", ", 1)).sub(_DAY_FIRST, _day_first).sub(_YEAR_FIRST, _year_first)
    text = text.sub(_YEAR_LAST, (1, "/", 2, "/", 3)).sub(_THOUSANDS, lambda m: (re.sub(r"\D", ",", m[0]),))
    text = text.sub(_EMERGENCY, _digits).sub(_PHONE, _phone).sub(_LEADING_ZERO, _digits)
    text = text.sub(_NAMED_RANGE, lambda m: (_name(m[1]) + " to " + _name(m[2]),))
    text = text.sub(_MONTH_YEAR, lambda m: (_name(m[1]),)).sub(_WEEKDAY, lambda m: (_name(m[1]),))
    text = text.sub(_MONTH_DAYS, lambda m: (1, " to " + _ordinal(int(m[2]))))
    text = text.sub(_MONTH_DAY_ON, (1, " to ")).sub(_ORDINAL_RANGE, (1, " to ")).sub(_FRACTION_RANGE, (1, " to "))
    text = text.sub(_EUROPEAN, lambda m: (m[1].replace(".", ",") + "." + m[2],))
    text = text.sub(_POINT_CLOCK, (1, ":", 2)).sub(_CLOCKS, _clocks).sub(_HALF_DAY, lambda m: (f" {m[1].upper()}.M",))
    text = text.sub(_MINUS_SIGN, " minus ")
    text = text.sub(_RANGE, _range).sub(_FRACTION, _fraction).sub(_VULGAR, _vulgar).sub(_RATIO, _ratio)
    text = text.sub(_EXPONENT, (1, " times 10 to the power of ", 2)).sub(_POWER, _power)
    text = text.sub(_CARET, lambda m: (" squared" if m[1] == "2" else " cubed",))
    return text.sub(_NAMED_DECIMAL, _decimal).sub(_ROUND_DECIMAL, _decimal)


def _digits(match: re.Match[str]) -> tuple[Piece, ...]:
    return (" ".join(match[0]),)


def _phone(match: re.Match[str]) -> tuple[Piece, ...]:
    groups = re.findall(r"\d+", match[0])
    if match[0].startswith("+") and sum(map(len, groups)) < 8:
        return (0,)
    said = ", ".join(" ".join(group) for group in groups)
    return (("plus " if match[0].startswith("+") else "") + said,)


def _name(short: str) -> str:
    return _SHORT.get(short, short)


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _day_first(match: re.Match[str]) -> tuple[Piece, ...]:
    day, month = int(match[1]), int(match[2])
    return (f"{match[3]}-{month:02}-{day:02}" if 0 < month < 13 and 0 < day < 32 else 0,)


def _year_first(match: re.Match[str]) -> tuple[Piece, ...]:
    return (f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}",)


def _clocks(match: re.Match[str]) -> tuple[Piece, ...]:
    return (1, " to ", 2) if re.search("[:m]", match[0], re.I) else (0,)


def _range(match: re.Match[str]) -> tuple[Piece, ...]:
    first, last = (float(re.sub("[^0-9.]", "", match[name])) for name in ("first", "last"))
    sum_before = re.search(r"[=+*×÷] ?$", match.string[: match.start()])
    spaced = match["dash"].startswith(" ") and match["dash"].endswith(" ")
    if sum_before or re.match(r" ?[=+*×÷]", match.string[match.end() :]) or (spaced and first > last):
        return (*_first(match), " minus ", _group(match, "last"))
    if first == last:
        return (*_first(match), " ", _group(match, "last"))
    if match["unit"] and match["last"][0].isdigit() and "." not in match["first"]:
        return (_group(match, "first"), " to " + match["unit"], _group(match, "last"))  # "$5-10": five to ten dollars
    return (*_first(match), " to ", _group(match, "last"))


def _group(match: re.Match[str], name: str) -> int:
    return match.re.groupindex[name]


def _first(match: re.Match[str]) -> tuple[Piece, ...]:
    return tuple(_group(match, name) for name in ("unit", "first", "mark") if match[name])


def _share(above: int, below: int) -> str:
    if below == 2 and above == 1:
        return "one half"
    part = "halve" if below == 2 else _PARTS[below]
    return f"{above} {part}" + ("" if above == 1 else "s")


def _mixed(whole: str, above: int, below: int) -> str:
    return f"{whole} and " + (f"a {_PARTS[below]}" if above == 1 and below != 8 else f"{_share(above, below)}")


def _fraction(match: re.Match[str]) -> tuple[Piece, ...]:
    before, after = match.string[: match.start()], match.string[match.end() :]
    above, below = int(match[2]), int(match[4])
    if match[1]:
        return (_mixed(match[1], above, below),) if above < below and below in _PARTS else (0,)
    if match[3] != "/" or re.match(r" ?[=*×÷]", after) or re.search(r"[=*×÷] ?$", before):
        return (2, " divided by ", 4)
    dated = re.search(r"\b(?:on|due|dated) $", before, re.I) or match[2].startswith("0") or match[4].startswith("0")
    date = f"{_MONTHS[above - 1]} {below}" if 0 < above < 13 and 0 < below < 32 else ""
    if date and dated and not after.startswith(" of"):
        return (date,)
    season = len(match[2]) == 4 and len(match[4]) == 2
    if season or (above, below) in ((24, 7), (9, 11), (50, 50), (60, 40)):
        return (2, " ", 4)
    scored = (below in (10, 100) and above != 1) or above == below or re.match(" stars?", after)
    if above <= below and scored and not after.startswith(" of"):
        return (2, " out of ", 4)
    if 0 < above < below and below in _PARTS:
        return (_share(above, below),)
    return (date,) if date and (above < below or below == 1) else (2, " over ", 4)


def _vulgar(match: re.Match[str]) -> tuple[Piece, ...]:
    above, _, below = unicodedata.normalize("NFKC", match[2]).partition("⁄")
    if not below:
        return (0,)
    return (_mixed(match[1], int(above), int(below)) if match[1] else _share(int(above), int(below)),)


def _ratio(match: re.Match[str]) -> tuple[Piece, ...]:
    clock = len(match[2]) == 2 and int(match[2]) < 60 and int(match[1]) <= 24
    return (0,) if clock else (1, " to ", 2)


def _power(match: re.Match[str]) -> tuple[Piece, ...]:
    raised = unicodedata.normalize("NFKC", match[2])
    if not match[1] and raised in "23":
        return (" squared" if raised == "2" else " cubed",)
    return (" to the power of " + ("minus " if match[1] else "") + raised,)


def _decimal(match: re.Match[str]) -> tuple[Piece, ...]:
    if re.search(r"\b(?:USD|EUR|GBP|Rs\.?) $", match.string[: match.start()]):
        return (0,)  # money
    return (1, " point " + " ".join(match[2]))
