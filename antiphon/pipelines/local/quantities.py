"""Measures and money that hibari's normaliser does not know, read in words."""

from __future__ import annotations

import re

from antiphon.pipelines.local.aligned import Aligned, Piece
from antiphon.pipelines.local.figures import NUM

_UNITS = {
    "m": "meter", "g": "gram", "l": "liter", "L": "liter", "mL": "milliliter", "cl": "centiliter", "cL": "centiliter",
    "dl": "deciliter", "dL": "deciliter", "W": "watt", "V": "volt", "kV": "kilovolt", "mV": "millivolt", "mA": "milliamp",
    "Wh": "watt hour", "MWh": "megawatt hour", "dB": "decibel", "kcal": "kilocalorie", "kJ": "kilojoule", "kPa": "kilopascal",
    "hPa": "hectopascal", "μm": "micrometer", "μs": "microsecond", "µs": "microsecond", "μg": "microgram", "ns": "nanosecond",
    "h": "hour", "yr": "year", "yrs": "year", "wk": "week", "wks": "week", "Ω": "ohm", "kΩ": "kiloohm", "PB": "petabyte",
    "ha": "hectare", "gal": "gallon", "tsp": "teaspoon", "tbsp": "tablespoon", "px": "pixel", "mmHg": "millimeter of mercury",
    "m/s": "meter per second", "km/s": "kilometer per second", "MB/s": "megabyte per second", "GB/s": "gigabyte per second",
    "kbps": "kilobit per second", "Kbps": "kilobit per second", "m/s²": "meter per second squared",
}  # fmt: skip
_UNITS |= {
    f"{sign}{power}": f"{'square' if power in '2²' else 'cubic'} {word}"
    for sign, word in {
        "m": "meter",
        "km": "kilometer",
        "cm": "centimeter",
        "mm": "millimeter",
        "ft": "foot",
        "mi": "mile",
    }.items()
    for power in "2²3³"
}
_PER = {
    "kg": "kilogram", "g": "gram", "lb": "pound", "oz": "ounce", "km": "kilometer", "m": "meter", "mi": "mile", "l": "liter",
    "L": "liter", "gal": "gallon", "h": "hour", "hr": "hour", "mo": "month", "yr": "year", "wk": "week", "min": "minute",
    "s": "second", "sec": "second", "m²": "square meter",
}  # fmt: skip
_CODES = {
    "USD": "US dollar", "EUR": "euro", "GBP": "pound", "CHF": "Swiss franc", "CAD": "Canadian dollar",
    "AUD": "Australian dollar", "INR": "rupee",
}  # fmt: skip
_COINS = {"₽": "ruble", "₿": "bitcoin", "₺": "lira", "₪": "shekel", "₦": "naira", "₱": "peso"}
_COUNTRY = {"US": "US", "AU": "Australian", "A": "Australian", "CA": "Canadian", "C": "Canadian"}

_units = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_UNIT = re.compile(rf"(?<![\w.$€£¥,])(-?{NUM}) ?({_units})(?![\w/²³]|-\d)")
_MEASURED_SECONDS = re.compile(rf"(?<![\w.$€£¥,])(-?{NUM})(?:(?<=\.\d)s|(?<=\.\d\d)s| s)(?![\w/'’])")
_HOURS_MINUTES = re.compile(r"(?<![\w.])(\d{1,3}) ?h ?(\d{1,2}) ?m(?:in)?(?!\w)")
_per = "|".join(sorted(map(re.escape, _PER), key=len, reverse=True))
_SLASH_PER = re.compile(rf"(?<![\w./-])([$€£]?{NUM}(?: [a-z]+)?)/({_per}|[a-z]{{3,}})(?![\w/.])")
_DEGREES = re.compile("[ ]?([℃℉])")
_FEET_INCHES = re.compile(r"(?<![\w.])(\d{1,2})['′’](\d{1,2})(?:[\"″”]|''|(?![\w]))")
_FEET_AND = re.compile(r"(?<=\d ft )(\d{1,2}) in\b|(?<=\d feet )(\d{1,2}) in\b")
_FOLD = re.compile(rf"(?:(?<=\d-)|(?<![\w.$€£^])(?<![-=+*/(])(?<![-=+*/] ))({NUM})x(?!\w| ?[-+*/=^²³)])")
_BY = re.compile(r"(?<=\d)( ?(?:cm|mm|m|km|ft|in|px))?( ?)x ?(?=\d)")
_ABOUT = re.compile(r"~ ?(?=[$€£]?\d)")
_MINUS_MONEY = re.compile(r"(?:(?<![\w.)])[-−]([$€£])|([$€£])[-−])(?=\d)")
_COUNTRY_MONEY = re.compile(
    rf"\b(US|AU|A|CA|C)\$({NUM})(?!\d|[.,]\d| ?(?:[kKmMbB]\b|bn|hundred|thousand|million|billion|trillion))"
)
_COUNTRY_SIGN = re.compile(r"\b(?:US|AU|A|CA|C|NZ|HK)(?=\$\d)")
_BIG = re.compile(rf"(?<=[$€£])({NUM}) ?(bn|mn|tn)\b")
_CODE_AFTER = re.compile(rf"(?<![\w.$€£])({NUM}) ?({'|'.join(_CODES)})\b")
_CODE_BEFORE = re.compile(rf"\b(CHF|CAD|AUD|INR) ?({NUM})(?!\w)")
_COIN = re.compile(rf"([{''.join(_COINS)}]) ?({NUM})")


def read_quantities(text: Aligned) -> Aligned:
    text = text.sub(_MINUS_MONEY, lambda m: ("minus ", 1) if m[1] else ("minus " + m[2],)).sub(_ABOUT, "about ")
    text = text.sub(_COUNTRY_MONEY, lambda m: (2, " " + _many(m[2], _COUNTRY[m[1]] + " dollar"))).sub(_COUNTRY_SIGN, "")
    text = text.sub(_BIG, lambda m: (1, {"bn": " billion", "mn": " million", "tn": " trillion"}[m[2]]))
    text = text.sub(_CODE_AFTER, lambda m: (1, " " + _many(m[1], _CODES[m[2]])))
    text = text.sub(_CODE_BEFORE, lambda m: (2, " " + _many(m[2], _CODES[m[1]])))
    text = text.sub(_COIN, lambda m: (2, " " + _many(m[2], _COINS[m[1]])))
    text = text.sub(_DEGREES, lambda m: ("°C" if m[1] == "℃" else "°F",))
    text = text.sub(_FEET_INCHES, (1, " foot ", 2)).sub(_FEET_AND, lambda m: (1 if m[1] else 2, " inches"))
    text = text.sub(_BY, _by).sub(_FOLD, (1, " times"))
    text = text.sub(_HOURS_MINUTES, lambda m: (1, " " + _many(m[1], "hour") + " ", 2, " " + _many(m[2], "minute")))
    text = text.sub(_UNIT, lambda m: (1, " " + _many(m[1], _UNITS[m[2]])))
    text = text.sub(_MEASURED_SECONDS, lambda m: (1, " " + _many(m[1], "second")))
    return text.sub(_SLASH_PER, lambda m: (1, " per " + _PER.get(m[2], m[2])))


def _many(count: str, unit: str) -> str:
    """``unit`` as it is said after ``count``: "1 ohm", "12 ohms", "3 meters per second", "10 square feet"."""
    if count.lstrip("-") in ("1", "1.0"):
        return unit
    head, mark, tail = unit.partition(" of ") if " of " in unit else unit.partition(" per ")
    return (head[:-4] + "feet" if head.endswith("foot") else head + "s") + mark + tail


def _by(match: re.Match[str]) -> tuple[Piece, ...]:
    if match.string[: match.start()].endswith("0") and not match.string[: match.start() - 1][-1:].isdigit():
        return (0,)  # 0x10
    times = " times " if re.match(r"\d+ ?=", match.string[match.end() :]) else " by "
    return (1, times) if match[1] else (times,)
