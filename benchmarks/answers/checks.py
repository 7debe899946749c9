"""Does an answer pass? A small checker per request, so that no judge model is needed.

``all``: every word given occurs; ``any``: at least one does; ``none``: none does; ``number``: the number occurs, in
digits or in words; ``regex``; ``count: [n, list]``: at least n of the list occur; ``words``: at most so many words.
Every answer must also be fit to be spoken: not empty, at most 70 words, no markdown, no letters of another script.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_words() -> dict[str, int]:
    """English words for 0..99, and the two round ones that the requests ask for."""
    words = {w: i for i, w in enumerate(_UNITS)}
    for t, tens in enumerate(_TENS, start=2):
        words[tens] = 10 * t
        for u in range(1, 10):
            words[f"{tens}-{_UNITS[u]}"] = words[f"{tens} {_UNITS[u]}"] = 10 * t + u
    words |= {"hundred": 100, "one hundred": 100, "a hundred": 100, "thousand": 1000, "one thousand": 1000}
    words["a thousand"] = 1000
    return words


_WORDS = number_words()
_NUMBER = re.compile(
    r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)|\b(" + "|".join(sorted(map(re.escape, _WORDS), key=len, reverse=True)) + r")\b"
)


def numbers(text: str) -> list[float]:
    found = []
    for digits, word in _NUMBER.findall(text.lower()):
        found.append(float(digits.replace(",", "")) if digits else float(_WORDS[word]))
    return found


def _has(text: str, word: str) -> bool:
    return re.search(r"(?<![a-z0-9])" + re.escape(word), text) is not None


def speakable(answer: str, limit: int = 70) -> bool:
    if not answer.strip() or len(answer.split()) > limit:
        return False
    if re.search(r"\*\*|```|^#|^\s*[-*] |^\s*\d+\. .*\n\s*\d+\. |<\|", answer, re.M):
        return False
    return not re.search(r"[\u0400-\u04ff\u0600-\u06ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]", answer)


def passes(answer: str, check: dict[str, Any]) -> bool:
    text = answer.lower()
    if not speakable(answer, check.get("words", 70)):
        return False
    tests = [
        all(_has(text, w) for w in check.get("all", ())),
        not check.get("any") or any(_has(text, w) for w in check["any"]),
        not any(_has(text, w) for w in check.get("none", ())),
        "number" not in check or float(check["number"]) in numbers(text),
        "regex" not in check or re.search(check["regex"], text) is not None,
    ]
    if "count" in check:
        least, words = check["count"]
        tests.append(sum(_has(text, w) for w in words) >= least)
    return all(tests)


def call_passes(name: str | None, arguments: dict[str, Any] | None, item: dict[str, Any]) -> bool:
    """The right tool and, loosely, the right arguments: a string must contain the expected one, a number be equal."""
    if item["call"] is None or name != item["call"]:
        return name == item["call"]
    if not isinstance(arguments, dict) or set(arguments) != set(item["arguments"]):
        return False
    for key, want in item["arguments"].items():
        got = arguments[key]
        if isinstance(want, str) and not (isinstance(got, str) and want in got.lower()):
            return False
        if not isinstance(want, str) and got != want:
            return False
    return True
