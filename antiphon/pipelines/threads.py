"""How many threads each model of a process may use: what its placement says (``ProcessOptions.threads``), else one.

One is right where several models share few cores: with two threads each on two busy cores every one of them got slower.
"""

from __future__ import annotations

import os

VARIABLE = "ANTIPHON_STAGE_THREADS"
"""Says it to the engines, which take a number and read no environment of their own."""
LIBRARIES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Say it to numeric libraries, when they are loaded."""


def granted() -> int:
    """For an engine that is being built in this process."""
    told = os.environ.get(VARIABLE, "")
    return max(1, int(told)) if told.isascii() and told.isdigit() else 1


def variables(threads: int) -> dict[str, str]:
    """The environment of a process whose models may use so many."""
    return dict.fromkeys((VARIABLE, *LIBRARIES), str(threads))
