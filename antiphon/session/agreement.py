"""What of a growing reading may be told: its words, as far as two readings in a row agree on them.

Local agreement (Macháček et al., "Turning Whisper into Real-Time Transcription System", 2023), by words: a recogniser that
hears more changes its mind about capitals and punctuation far more often than about words, and neither is a reason to fall
silent. So words are compared by their letters alone, and the punctuation behind a word is told with the next one.
"""

from __future__ import annotations

import re

_ALONE = "\u0e00-\u0e7f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\uffdc"
"""Scripts that write no spaces to rely on: each character stands for itself."""
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+(?:['’\-][^\W{_ALONE}]+)*")


def _words(text: str) -> list[tuple[str, int]]:
    """Each word as it is compared, and where it ends."""
    return [(found[0].replace("’", "'").casefold(), found.end()) for found in _WORD.finditer(text)]


def agreed(before: str, now: str, told: str) -> str:
    """What may be told beyond ``told`` after two readings; empty when they do not agree further, or not with ``told``."""
    said, old, new = _words(told), _words(before), _words(now)
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a[0] != b[0]), min(len(old), len(new)))
    if same <= len(said) or not _goes_on(said, new):
        return ""
    return now[_end(said, new) : new[same - 1][1]]


def rest(told: str, text: str) -> str:
    """What ``text`` has beyond ``told``; empty when its words begin otherwise."""
    said, words = _words(told), _words(text)
    return text[_end(said, words) :] if _goes_on(said, words) else ""


def _goes_on(said: list[tuple[str, int]], words: list[tuple[str, int]]) -> bool:
    return [word for word, _ in words[: len(said)]] == [word for word, _ in said]


def _end(said: list[tuple[str, int]], words: list[tuple[str, int]]) -> int:
    return words[len(said) - 1][1] if said else 0
