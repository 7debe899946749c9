"""The talker: clauses -> frames, by hibari's net (voice "heart"), with exact marks from its durations."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hibari import Hibari
from numpy.typing import NDArray

from antiphon.pipelines import weights
from antiphon.pipelines.errors import Refused
from antiphon.pipelines.local.phonemes import MAX_IDS, Phonemes, Reader
from antiphon.pipelines.local.spoken import Frames, SpokenClause
from antiphon.pipelines.local.synthesis import HOP, levels
from antiphon.pipelines.local.voices import check_voice
from antiphon.pipelines.outputs import Mark
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import WAIT, Chunk, Emit, Inputs, Ready, Request, Stage, Wait
from antiphon.pipelines.threads import granted

FRAME_MS = 12.5
_QUIET_DB = -60.0
_MARGIN = 2  # quiet frames kept before the first sound
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Run:
    phonemes: Phonemes
    clause: SpokenClause
    last: bool


@dataclass(slots=True)
class _Task:
    speed: float
    noise: np.random.Generator
    clauses: deque[SpokenClause] = field(default_factory=deque)
    runs: deque[_Run] = field(default_factory=deque)
    over: bool = False


class Talker(Stage[_Task]):
    """Emits one ``Frames`` chunk a clause, its span the clause's playing time. A step reads one clause or runs the net once.

    The noise of a request comes from one seeded generator, so equal requests sound equal, whatever runs beside them
    (``stage_params["talker"]["seed"]``). ``trim``: the net puts about 0.3 s of digital silence before every clause and
    0.4 s after it; with ``trim`` the silence before is cut (the voice starts sooner) and the one after is what its
    punctuation asks for. Without it the samples are those of the package.
    """

    def __init__(self, trim: bool = True, threads: int | None = None) -> None:
        self.trim = trim
        self.threads = threads or granted()
        self._net: Any = None
        self._reader: Reader | None = None

    def warm_up(self) -> None:
        path = weights.path("hibari-heart") / "hibari-heart.onnx"
        voice = Hibari(model=str(path), threads=self.threads)
        self._net, self._reader = voice.sess, Reader(voice.g2p, voice.vocab)
        for run in self._reader.read("Warm up, Xylophonia, at 10:30.", (8, 20, 23, 30)):
            self._run_net(run.ids, 1.0)

    def open(self, request: Request, inputs: Inputs) -> _Task:
        body: GenerateRequest = request.body
        check_voice(body.voice)
        own = body.stage_params.get("talker", {})
        if unknown := set(own) - {"seed"}:
            raise Refused(f"stage_params.talker knows no {sorted(unknown)[0]!r}; it knows: seed", param="stage_params")
        seed = own.get("seed", body.sampling_seed("talker"))
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise Refused("stage_params.talker.seed must be a whole number >= 0", param="stage_params")
        return _Task(body.voice.speed, np.random.default_rng(_SEED if seed is None else seed))

    def feed(self, task: _Task, chunk: Chunk) -> None:
        if chunk.last:
            task.over = True
        else:
            task.clauses.append(chunk.data)

    def poll(self, task: _Task, now: float) -> Ready | Wait:
        if task.runs or task.clauses:
            return Ready(hungry=False)
        return Ready() if task.over else WAIT

    def step(self, batch: Sequence[_Task], emit: Emit) -> None:
        for task in batch:
            if task.runs:
                frames = self._draw(task, task.runs.popleft())
                emit.chunk(task, frames, span_ms=(frames.stop - frames.start) * FRAME_MS)
            elif task.clauses:
                clause = task.clauses.popleft()
                runs = self._read(clause, task.speed)
                task.runs.extend(_Run(run, clause, run is runs[-1]) for run in runs)
            elif task.over:
                emit.result(task)

    def _read(self, clause: SpokenClause, speed: float) -> list[Phonemes]:
        assert self._reader is not None, "warm_up comes first"
        return self._reader.read(clause.text, clause.word_ends, max(48, int(MAX_IDS * min(1.0, speed))))

    def _draw(self, task: _Task, run: _Run) -> Frames:
        spectra, f0, durations = self._run_net(run.phonemes.ids, task.speed)
        count = len(f0)
        shape = (spectra.shape[1], 2 * count)
        noise = task.noise.standard_normal(shape, dtype=np.float32).view(np.complex64)
        ends = np.cumsum(durations) * (count / max(1.0, float(durations.sum())))
        quiet = levels(spectra, f0) < _QUIET_DB
        start, stop = 0, count
        if self.trim:
            start, stop = _audible(quiet, round(run.clause.gap_ms / FRAME_MS / task.speed) if run.last else 4)
        marks: list[Mark] = []
        for last, offset in run.phonemes.words:
            frame = min(max(round(float(ends[last])), start + 1), stop)
            while frame > start + 1 and quiet[frame - 1]:  # the net counts the silence after a word to its last phoneme
                frame -= 1
            marks.append(Mark((frame - start) * HOP, offset))
        if run.last:
            marks.append(Mark((stop - start) * HOP, run.clause.end))
        return Frames(spectra, f0, noise, start, stop, _in_order(marks))

    def _run_net(
        self, ids: Sequence[int], speed: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """(spectra [5, 601, F], f0 [F], durations [L] in steps of 25 ms) at this speed."""
        drawn = net_speed(speed)
        feed = {"ids": np.asarray([ids], np.int64), "speed": np.asarray([drawn], np.float32)}
        *parts, f0, durations = self._net.run(None, feed)
        spectra = np.concatenate(parts)
        if speed > drawn:  # the rest is made up by leaving frames out, evenly
            ratio = speed / drawn
            kept = ((np.arange(int(spectra.shape[2] / ratio)) + 0.5) * ratio).astype(np.intp)
            spectra, f0 = np.ascontiguousarray(spectra[:, :, kept]), f0[:, kept]
        return spectra, f0[0], durations


def net_speed(speed: float) -> float:
    """The speed at which the net draws; what is missing to ``speed`` is made up by leaving frames out.

    The net cannot draw a phoneme shorter than 25 ms and slurs well before that. Read back by Whisper base (five sentences),
    word error at speed 2 was .15 drawn at 2 and .07 drawn at 1.25, at 2.5 .20 and .07; at 4 .59 at 2 and .82 at 1.25.
    """
    if speed <= 1.5:
        return speed
    return 1.25 if speed <= 3 else 2.0


def _audible(quiet: NDArray[np.bool_], gap: int) -> tuple[int, int]:
    """The frames from just before the first sound to ``gap`` frames after the last (as far as there are any)."""
    loud = np.nonzero(~quiet)[0]
    if not len(loud):
        return 0, len(quiet)
    return max(0, int(loud[0]) - _MARGIN), min(len(quiet), int(loud[-1]) + 1 + max(gap, _MARGIN))


def _in_order(marks: list[Mark]) -> tuple[Mark, ...]:
    """One mark a sample at most, the furthest; offsets never go back."""
    kept: list[Mark] = []
    for mark in marks:
        if kept and mark.text_offset <= kept[-1].text_offset:
            continue
        if kept and mark.sample <= kept[-1].sample:
            kept[-1] = Mark(kept[-1].sample, mark.text_offset)
        else:
            kept.append(mark)
    return tuple(kept)
