"""Several clips read at once: they share the model, and their windows are decoded together where the lengths agree.

Four windows decoded in one batch cost 1.4 times one, and each reads what it reads alone; encoding gains nothing from a batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from antiphon.pipelines.local.reading import DECODE_S, GROUP, Phase, Reading
from antiphon.pipelines.outputs import TranscriptResult

ENCODE_S: Final = 18.0
"""Window seconds encoded in one step, of all clips together."""
SCAN_COST: Final = 0.2
"""Looking through a second for speech, in seconds of encoding."""


def advance(readings: Sequence[Reading]) -> None:
    """One step for these clips: encode what fits in one, else decode one batch. No step takes more than a window or so."""
    for reading in readings:
        reading.collect()
    ready = [r for r in readings if r.phase is Phase.DECODE]
    hungry = [r for r in readings if r.phase in (Phase.SCAN, Phase.ENCODE)]
    aligning = [r for r in readings if r.phase is Phase.ALIGN]
    if hungry and not any(r.waited for r in ready):
        for reading in ready:
            reading.waited = True
        _encode(hungry)
    elif ready:
        _decode(ready)
    for reading in aligning:
        reading.settle()


def _encode(hungry: Sequence[Reading]) -> None:
    spent = 0.0
    for reading in hungry:
        if reading.phase is Phase.SCAN:
            spent += SCAN_COST * reading.scan()
        if reading.phase is Phase.ENCODE:
            cost = reading.window_s()
            if spent and spent + cost > ENCODE_S:
                return
            reading.encode()
            spent += cost


def _decode(ready: Sequence[Reading]) -> None:
    first = ready[0]
    shape = first.shape(first.to_decode()[0])
    same = [(r, p) for r in ready for p in r.to_decode() if r.shape(p) == shape]
    batch = same[: max(1, min(GROUP, int(DECODE_S / max(p.span.seconds for _, p in same))))]
    prompts = [r.prompt(p) for r, p in batch]
    found = first.model.decode(
        [p.encoded for _, p in batch if p.encoded is not None],
        prompts,
        [r.cap(p) for r, p in batch],
        temperature=shape[2],
    )
    for (reading, piece), one in zip(batch, found, strict=True):
        reading.waited = False
        reading.decoded(piece, one)


def read(reading: Reading) -> TranscriptResult:
    """Read one clip to its end; blocks."""
    while reading.phase is not Phase.DONE:
        advance([reading])
        if reading.phase is Phase.WAIT:
            time.sleep(0.002)
    return reading.result()
