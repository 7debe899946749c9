"""What the ears cost: `python -m benchmarks.ears` prints a table. One thread, CPU time, medians."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

import numpy as np

from antiphon.pipelines import weights
from antiphon.pipelines.ears import silero, smart_turn
from antiphon.pipelines.ears.ears import Ears, Score
from antiphon.pipelines.ears.fallback import Fallback
from benchmarks.machine import machine, table

RATE = 16_000
SESSIONS, SECONDS = 16, 8


def cpu_ms(call: Callable[[], object], times: int) -> float:
    """Median CPU milliseconds of one call."""
    call()
    spent = []
    for _ in range(times):
        before = time.process_time()
        call()
        spent.append(time.process_time() - before)
    return 1e3 * statistics.median(spent)


async def through_the_ears(sound: np.ndarray) -> tuple[float, float]:
    """CPU per window of audio that arrives in real time, all sessions together, silence and speech: (ms, mean batch)."""
    ears = Ears(turns=False)
    got: list[list[Score]] = [[] for _ in range(SESSIONS)]
    places = [ears.open(g.extend) for g in got]
    before, begin = time.process_time(), time.monotonic()
    for tick in range(SECONDS * 50):
        for ear in places:
            ear.push(sound[tick * 320 : (tick + 1) * 320])
        await asyncio.sleep(max(0.0, begin + (tick + 1) * 0.02 - time.monotonic()))
    for _ in range(1000):
        if all(len(g) >= SECONDS * RATE // 512 for g in got):
            break
        await asyncio.sleep(0.01)
    spent, stats = time.process_time() - before, ears.stats()
    ears.shut_down()
    return 1e3 * spent / stats["windows"], (stats["windows"] - stats["silent"]) / max(1, stats["batches"])


def main() -> None:
    rng = np.random.default_rng(0)
    net = silero.Silero(weights.ensure(silero.WEIGHT))
    turn = smart_turn.SmartTurn(weights.ensure(smart_turn.WEIGHT))
    rows: list[list[str]] = []
    for batch in (1, 8, 64):
        voices = [silero.Voice() for _ in range(batch)]
        windows = (rng.normal(size=(batch, silero.WINDOW)) * 0.1).astype(np.float32)
        ms = cpu_ms(lambda v=voices, w=windows: net.score(v, w), 400 // batch + 20) / batch  # type: ignore[misc]
        rows.append([f"Silero, 32 ms window, batch {batch}", f"{ms * 1e3:.0f} us", f"{32 / ms:.0f}"])
    fallback, one = Fallback(), (rng.normal(size=512) * 0.1).astype(np.float32)
    ms = cpu_ms(lambda: fallback.score(one), 300)
    rows.append(["fallback, 32 ms window", f"{ms * 1e3:.0f} us", f"{32 / ms:.0f}"])
    sound = (rng.normal(size=SECONDS * RATE) * 0.1).astype(np.float32)
    ms, batch_mean = asyncio.run(through_the_ears(sound))
    rows.append(
        [
            f"ears whole, {SESSIONS} sessions, 20 ms packets (mean batch {batch_mean:.1f})",
            f"{ms * 1e3:.0f} us",
            f"{32 / ms:.0f}",
        ]
    )
    for batch in (1, 4):
        ms = cpu_ms(lambda b=batch: turn.score([sound] * b), 10) / batch  # type: ignore[misc]
        rows.append([f"Smart Turn, one utterance, batch {batch}", f"{ms:.1f} ms", "-"])
    print(machine())
    print(table(["what", "CPU", "listening sessions a core"], rows))


if __name__ == "__main__":
    main()
