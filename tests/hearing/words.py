"""Word error for tests."""

from __future__ import annotations

import re


def words(text: str) -> list[str]:
    """Lower case, without punctuation; hyphens part words."""
    return re.sub(r"[^\w' ]+", " ", text.lower().replace("-", " ")).replace("'", "").split()


def errors(reference: str, heard: str) -> int:
    """Words to insert, delete or replace (Levenshtein)."""
    said, got = words(reference), words(heard)
    row = list(range(len(got) + 1))
    for i, word in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]
