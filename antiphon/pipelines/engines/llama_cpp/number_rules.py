"""GBNF for whole numbers within bounds: decimal ranges split into runs of equal digits."""

from __future__ import annotations

MAX_DIGITS = 15
LIMIT = 10**MAX_DIGITS - 1
"""Where no bound is given: every whole number up to here is exact in a double (RFC 8259, section 6)."""


def _digits(low: str, high: str) -> str:
    """One digit in [low, high]."""
    return f'"{low}"' if low == high else f"[{low}-{high}]"


def _any_digits(count: int) -> str:
    return "" if not count else "[0-9]" if count == 1 else f"[0-9]{{{count}}}"


def _same_length(low: str, high: str) -> list[str]:
    """Alternatives for the numbers of equal length from ``low`` to ``high``."""
    if low == high:
        return [f'"{low}"']
    shared = 0
    while low[shared] == high[shared]:
        shared += 1
    lead = f'"{low[:shared]}" ' if shared else ""
    low, high = low[shared:], high[shared:]
    rest = len(low) - 1
    if not rest:
        return [lead + _digits(low, high)]
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return [f"{lead}{_digits(low[0], high[0])} {_any_digits(rest)}"]
    parts: list[str] = []
    first, last = int(low[0]), int(high[0])
    if low[1:] != "0" * rest:
        parts += [f'"{first}" {p}' for p in _same_length(low[1:], "9" * rest)]
        first += 1
    tail: list[str] = []
    if high[1:] != "9" * rest:
        tail = [f'"{last}" {p}' for p in _same_length("0" * rest, high[1:])]
        last -= 1
    if first <= last:
        parts.append(f"{_digits(str(first), str(last))} {_any_digits(rest)}")
    return [lead + p for p in parts + tail]


def natural(low: int, high: int) -> list[str]:
    """Alternatives for the whole numbers 0 <= low..high, without leading zeros."""
    parts: list[str] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        least = max(low, 0 if length == 1 else 10 ** (length - 1))
        most = min(high, 10**length - 1)
        if least <= most:
            parts += _same_length(str(least), str(most))
    return parts


def whole(low: int, high: int) -> str:
    """A rule body for the whole numbers low..high; both are clamped to ``LIMIT``. Empty when there is none."""
    low, high = max(low, -LIMIT), min(high, LIMIT)
    if low > high:
        return ""
    parts: list[str] = []
    if low < 0:
        parts += [f'"-" {p}' for p in natural(max(1, -high), -low)]
    if high >= 0:
        parts += natural(max(0, low), high)
    return " | ".join(parts)
