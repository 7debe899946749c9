"""One generation's events, from the graph to the machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from antiphon.pipelines.errors import Aborted, Refused, StageFailed
from antiphon.pipelines.outputs import (
    AudioDelta,
    CallDelta,
    TextDelta,
    TextResult,
    TranscriptResult,
    Usage,
)
from antiphon.realtime.state import Generation
from antiphon.session import events as ev

log = logging.getLogger("antiphon.realtime")

PIECE = ev.OUT_RATE // 5
"""Samples in one piece of audio at most: what a client gets at once, and what an interruption can cost to pace."""
TELL_EVERY_S = 0.2


Feed = Callable[[ev.In], None]


async def pump_answer(gen: str, work: Generation, feed: Feed) -> None:
    """An answer (or a preparation) into TextMade, AudioMade, CallMade and exactly one Ended."""
    reason: Literal["stop", "length"] = "stop"
    usage = Usage()
    pieces = Pieces(gen)
    try:
        async for event in work:
            match event.data:
                case TextDelta(text, tokens):
                    feed(ev.TextMade(gen, text, tokens))
                case CallDelta():
                    call = event.data
                    feed(ev.CallMade(gen, call.call_id, call.name, call.arguments, call.last))
                case AudioDelta():
                    for piece in pieces.of(event.data):
                        feed(piece)
                case TextResult():
                    reason = "length" if event.data.finish_reason == "length" else "stop"
                    usage = event.data.usage
    except (Refused, StageFailed, Aborted) as e:
        feed(failed(gen, e))
    except Exception:
        # Boundary: whatever a pipeline raises fails this answer, not the conversation; its text is not for clients.
        log.exception("generation failed", extra={"gen": gen})
        feed(ev.Ended(gen, "failed", error="The model failed.", code="model_error"))
    else:
        feed(ev.Ended(gen, reason, usage))


async def pump_transcript(gen: str, work: Generation, tell: Callable[[str | None, str], None]) -> None:
    """A transcription into one call of ``tell(text, error)``."""
    text = None
    try:
        async for event in work:
            if isinstance(event.data, TranscriptResult):
                text = event.data.text
    except (Refused, StageFailed, Aborted) as e:
        tell(None, failed(gen, e).error)
    except Exception:
        # Boundary: as above.
        log.exception("transcription failed", extra={"gen": gen})
        tell(None, "The transcription failed.")
    else:
        tell(text, "" if text is not None else "No transcript was made.")


def failed(gen: str, error: Exception) -> ev.Ended:
    """How a generation that the graph ended early is told to the machine."""
    if isinstance(error, StageFailed):
        return ev.Ended(gen, "failed", error=error.message, code=error.code)
    if isinstance(error, Refused):
        return ev.Ended(gen, "failed", error=str(error), code=error.code)
    if isinstance(error, Aborted):
        return ev.Ended(gen, "failed", error=f"The answer was stopped: {error.reason}.", code=error.reason)
    return ev.Ended(gen, "failed", error="The model failed.")


class Pieces:
    """An answer's audio in pieces of at most ``PIECE`` samples; a mark goes with the piece that its sample falls in."""

    def __init__(self, gen: str) -> None:
        self._gen = gen
        self._made = 0

    def of(self, delta: AudioDelta) -> list[ev.AudioMade]:
        made = []
        marks = [(mark.sample, mark.text_offset) for mark in delta.marks]
        for start in range(0, len(delta.pcm), PIECE):
            pcm = delta.pcm[start : start + PIECE]
            self._made += len(pcm)
            last = start + PIECE >= len(delta.pcm)
            mine = [mark for mark in marks if last or mark[0] <= self._made]
            marks = marks[len(mine) :]
            made.append(ev.AudioMade(self._gen, pcm, len(pcm), tuple(mine), delta.exact))
        return made


class Teller:
    """The listener's progress, told to the graph on change and at most five times a second; the last word always."""

    def __init__(self, work: Generation, loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._last = -TELL_EVERY_S
        self._pending: ev.Progress | None = None
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, progress: ev.Progress) -> None:
        self._pending = progress
        if self._timer is None:
            wait = self._last + TELL_EVERY_S - self._loop.time()
            if wait <= 0:
                self._now()
            else:
                self._timer = self._loop.call_later(wait, self._now)

    def stop(self) -> None:
        """The generation is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        if self._pending is not None:
            told, self._pending = self._pending, None
            self._last = self._loop.time()
            self._work.tell(due_in_ms=told.due_in_ms, heard_ms=told.heard_ms, window_ms=told.window_ms)
