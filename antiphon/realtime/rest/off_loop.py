"""What would hold up the event loop, and with it every conversation, runs on a thread; what is small does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from antiphon.codecs.encode import Encoder

T = TypeVar("T")

LARGE: Final = 256 << 10
"""Bytes whose parsing, base64 or hashing takes about a millisecond."""


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """``work()``, on a thread if it has more than ``LARGE`` bytes to do."""
    return await asyncio.to_thread(work) if size > LARGE else work()


async def encoded(encoder: Encoder, samples: NDArray[np.float32]) -> bytes:
    """``encoder.feed(samples)``, on a thread if the codec is heavy."""
    return await asyncio.to_thread(encoder.feed, samples) if encoder.heavy else encoder.feed(samples)
