"""The transcriber: the clips of a request -> what is said in them. Terminal "transcript"; its Result feeds the Thinker.

Each step advances all its clips by one piece of work (``readings.advance``): at most a window. What has been read is kept by
content and options, and read once however many requests ask at the same time (``media_cache``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines import weights
from antiphon.pipelines.ears import silero
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local import whisper
from antiphon.pipelines.local.prepared import Clip, Prepared, Transcripts
from antiphon.pipelines.local.reading import Phase, Reading
from antiphon.pipelines.local.readings import advance, read
from antiphon.pipelines.log_mel import RATE
from antiphon.pipelines.media_cache import Known, MediaCache, Turn
from antiphon.pipelines.outputs import TranscriptDelta, TranscriptResult
from antiphon.pipelines.requests import AudioPart, GenerateRequest, Transcription
from antiphon.pipelines.stage import READY, Emit, Fence, Inputs, Ready, Reason, Request, Stage, Wait

NAME: Final = "transcriber"
QUIET: Final = 1e-3
"""A clip whose loudest sample lies below -60 dBFS holds nothing to read."""
REMEMBERED: Final = 512
"""Conversations whose language is kept."""
LOOK_AGAIN_S: Final = 0.01

Key = tuple[str, Transcription]


@dataclass(eq=False)
class _Clip:
    """One clip of a task. ``reading`` is set in the task that reads it, not in those that wait for its result."""

    key: Key
    pcm: NDArray[np.float32]
    reading: Reading | None = None
    result: TranscriptResult | None = None


@dataclass(eq=False)
class Hearing:
    """A request's clips, read in order; ``shown``: the last one is what the client sees grow."""

    conversation: str
    clips: list[_Clip] = field(default_factory=list)
    told: bool = False

    @property
    def current(self) -> _Clip | None:
        return next((c for c in self.clips if c.result is None), None)


@dataclass(frozen=True)
class _StillRunning:
    """The fence of an aborted reading: CTranslate2 cannot be interrupted inside a window."""

    reading: Reading

    def done(self) -> bool:
        return not self.reading.running()


class Transcriber(Stage[Hearing]):
    """Opens with ``Prepared``. Chunks: ``TranscriptDelta`` of the last clip; Result: ``Transcripts``.

    ``language``: what an utterance too short to tell its language is taken for, until the conversation has shown another.
    ``vad`` False reads everything, also where nobody speaks. ``cached``: how many transcripts are kept.
    """

    def __init__(self, weight: str = whisper.WEIGHT, vad: bool = True, language: str = "en", cached: int = 2048) -> None:
        self._weight, self._with_vad, self._language = weight, vad, language
        self._model: whisper.Recogniser | None = None
        self._vad: silero.Silero | None = None
        self._cache: MediaCache[TranscriptResult] = MediaCache(cached)
        self._spoken: OrderedDict[str, str] = OrderedDict()

    def warm_up(self) -> None:
        self._model = whisper.Recogniser(weights.path(self._weight))
        if self._with_vad:
            self._vad = silero.Silero(weights.path(silero.WEIGHT))
            self._vad.scan(np.zeros(4 * silero.WINDOW, np.float32))
        tone = (0.1 * np.sin(np.arange(RATE) / 8)).astype(np.float32)
        read(Reading(self._model, None, tone))

    def stats(self) -> dict[str, int]:
        """Counters of the transcript cache."""
        counts = self._cache.counts
        return {
            "transcripts_kept": len(self._cache),
            "transcripts_found": counts.hits,
            "transcripts_shared": counts.shared,
            "transcripts_read": counts.misses,
        }

    # ---- the contract
    def open(self, request: Request, inputs: Inputs) -> Hearing:
        prepared: Prepared = inputs
        options = prepared.request.transcription
        task = Hearing(request.conversation)
        self._check(options)
        given = _given(prepared.request)
        for i, clip in enumerate(prepared.clips):
            known = given[i] if i < len(given) else None
            task.clips.append(self._clip(task, clip, options, known))
        return task

    def poll(self, task: Hearing, now: float) -> Ready | Wait:
        clip = task.current
        if clip is None:
            return READY
        if clip.reading is None:
            return Wait(now + LOOK_AGAIN_S) if self._cache.peek(clip.key, clip) is Turn.WAIT else READY
        if clip.reading.stalled:
            return Wait(now + LOOK_AGAIN_S)
        return READY

    def step(self, batch: Sequence[Hearing], emit: Emit) -> None:
        readings = [reading for task in batch if (reading := self._reading(task)) is not None]
        if readings:
            advance(readings)
        for task in batch:
            self._collect(task, emit)

    def close(self, task: Hearing, reason: Reason) -> Fence | None:
        fence: Fence | None = None
        for clip in task.clips:
            self._cache.leave(clip.key, clip)
            if clip.reading is not None and clip.reading.running():
                fence = _StillRunning(clip.reading)
        return fence

    def forget(self, conversation: str) -> None:
        self._spoken.pop(conversation, None)

    # ---- inside
    def _check(self, options: Transcription) -> None:
        """Refused, by name, for what this model cannot do."""
        assert self._model is not None, "warm_up comes first"
        if options.language:
            self._model.vocabulary.start(options.language)
        if not 0.0 <= options.temperature <= 1.0:
            raise Refused("the temperature of a transcription lies between 0 and 1", param="temperature")

    def _clip(self, task: Hearing, clip: Clip, options: Transcription, known: str | None) -> _Clip:
        mine = _Clip((clip.key, options), clip.pcm)
        if known is not None:
            mine.result = TranscriptResult(known, options.language, len(clip.pcm) / RATE)
        elif not len(clip.pcm) or float(np.abs(clip.pcm).max()) < QUIET:
            mine.result = TranscriptResult("", options.language, len(clip.pcm) / RATE)
        else:
            found = self._cache.ask(mine.key, mine)
            if isinstance(found, Known):
                mine.result = found.value
        return mine

    def _reading(self, task: Hearing) -> Reading | None:
        """The reading that this task does now; None while another does it, or nothing is left."""
        clip = task.current
        if clip is None:
            return None
        if clip.reading is None and self._cache.peek(clip.key, clip) is Turn.COMPUTE:
            assert self._model is not None
            expected = self._spoken.get(task.conversation, self._language)
            clip.reading = Reading(self._model, self._vad, clip.pcm, clip.key[1], expected)
        return clip.reading

    def _collect(self, task: Hearing, emit: Emit) -> None:
        """Tell what is new, and end the task when its last clip is read."""
        clip = task.current
        if clip is not None:
            if clip.reading is not None:
                if clip is task.clips[-1] and (text := clip.reading.take_text()):
                    emit.chunk(task, TranscriptDelta(text))
                    task.told = True
                if clip.reading.phase is Phase.DONE:
                    clip.result = clip.reading.result()
                    self._cache.put(clip.key, clip, clip.result)
                    self._remember(task.conversation, clip.result.language)
            elif isinstance(found := self._cache.peek(clip.key, clip), Known):
                clip.result = found.value
                self._cache.leave(clip.key, clip)
        if task.current is None:
            if task.clips and not task.told and (last := task.clips[-1].result) is not None and last.text:
                emit.chunk(task, TranscriptDelta(last.text))
            emit.result(task, Transcripts(tuple(c.result for c in task.clips if c.result is not None)))

    def _remember(self, conversation: str, language: str) -> None:
        if conversation and language:
            self._spoken[conversation] = language
            self._spoken.move_to_end(conversation)
            while len(self._spoken) > REMEMBERED:
                self._spoken.popitem(last=False)


def _given(body: GenerateRequest) -> list[str | None]:
    """The transcripts that a chat's client gave with its audio parts, in the order of the clips."""
    if body.task == "transcription":
        return []
    return [p.transcript for m in body.messages for p in m.parts if isinstance(p, AudioPart)]
