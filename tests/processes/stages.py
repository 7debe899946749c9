"""Stages for graphs over processes, scripted by ``GenerateRequest.stage_params``, and the builder that places them.

    source -> double -> tail (terminal "out")

Stand-ins for models, in tests only. This module is imported by every worker: it stays light.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.errors import ConfigError, Refused
from antiphon.pipelines.graph import PipelineConfig, StageConfig
from antiphon.pipelines.placement import PipelineSpec
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import AsyncStage, Chunk, Emit, Inputs, Output, Ready, Request, Stage, Wait

HERE = "tests.processes.stages"
NAMES = ("source", "double", "tail")
RETURN = threading.Event()
"""Set by a test in whose own process a stage hangs."""
PLACES = {
    "one": {"source": "main", "double": "main", "tail": "main"},
    "split": {"source": "model", "double": "model", "tail": "model"},
    "apart": {"source": "source", "double": "double", "tail": "tail"},
    "middle": {"source": "main", "double": "model", "tail": "main"},
}


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """``pcm`` is filled with ``number``."""

    number: int
    pcm: NDArray[np.float32] | None = None


class DeviceLost(RuntimeError):
    """Nothing that its process does works any more."""


class Working:
    def __init__(self, request: Request, name: str) -> None:
        self.script: dict[str, Any] = request.body.stage_params.get(name, {})
        self.chunks: list[Piece] = []
        self.over = False
        self.sent = 0
        self.fed = 0
        self.steps = 0


class Scripted(Stage[Working]):
    """What its script makes it do: ``refuse`` at open; at step ``at`` (0: in its open): ``exit``, ``hang`` (until
    ``RETURN`` is set), ``spin`` (hold the interpreter), ``explode``, ``lose`` (its device); ``step_s`` in every step."""

    def __init__(self, name: str, load_s: float = 0.0) -> None:
        self.name = name
        self.load_s = load_s

    def warm_up(self) -> None:
        time.sleep(self.load_s)

    def open(self, request: Request, inputs: Inputs) -> Working:
        task = Working(request, self.name)
        if "refuse" in task.script:
            raise Refused(str(task.script["refuse"]), param="stage_params")
        if task.script.get("do") == "hang" and task.script["at"] == 0:
            RETURN.wait(3600)
        return task

    def mishap(self, task: Working, emit: Emit) -> bool:
        """True when it has ended the task. (An error raised out of a step would fail the whole batch.)"""
        task.steps += 1
        script = task.script
        time.sleep(script.get("step_s", 0.0))
        if task.steps != script.get("at", 0):
            return False
        match script.get("do"):
            case "exit":
                os._exit(3)
            case "hang":
                RETURN.wait(3600)
            case "spin":
                _hold_the_interpreter()
            case "explode":
                emit.failure(task, ValueError("a secret of the house"))
                return True
            case "lose":
                raise DeviceLost
        return False

    def fatal(self, error: Exception) -> bool:
        return isinstance(error, DeviceLost)


class Source(Scripted):
    """``n`` pieces of ``size`` float32 (0: none), one a step."""

    def step(self, batch: Sequence[Working], emit: Emit) -> None:
        for task in batch:
            if self.mishap(task, emit):
                continue
            if task.sent == task.script.get("n", 0):
                emit.result(task)
                continue
            size = task.script.get("size", 0)
            emit.chunk(task, Piece(task.sent, np.full(size, task.sent, np.float32) if size else None))
            task.sent += 1


class Double(Scripted):
    """Twice what comes, in order; checks what it gets."""

    def feed(self, task: Working, chunk: Chunk) -> None:
        if chunk.index != task.fed or task.over:
            raise RuntimeError(f"chunk {chunk.index} came when {task.fed} was due")
        task.fed += 1
        if chunk.last:
            task.over = True
            return
        piece: Piece = chunk.data
        if piece.pcm is not None and not (piece.pcm.dtype == np.float32 and bool((piece.pcm == piece.number).all())):
            raise RuntimeError("the content changed on its way")
        task.chunks.append(piece)

    def poll(self, task: Working, now: float) -> Ready | Wait:
        return Ready() if task.chunks or task.over else Wait()

    def step(self, batch: Sequence[Working], emit: Emit) -> None:
        for task in batch:
            if self.mishap(task, emit):
                continue
            if task.chunks:
                piece = task.chunks.pop(0)
                pcm = None if piece.pcm is None else piece.pcm * 2
                emit.chunk(task, Piece(piece.number * 2, pcm))
            elif task.over:
                emit.result(task, {"by": (self.name, os.getpid())})


class AsyncDouble(AsyncStage):
    """The async twin of ``Double``."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        blocks = "block" in request.body.stage_params.get(self.name, {})
        async for chunk in chunks:
            await asyncio.sleep(0)
            if blocks:
                RETURN.wait(3600)  # the mishap: nothing else on this loop runs
            piece: Piece = chunk.data
            yield Output(Piece(piece.number * 2, None if piece.pcm is None else piece.pcm * 2))
        yield Output({"by": (self.name, os.getpid())}, result=True)


class Echo(Scripted):
    """Says back what its client feeds it."""

    def feed(self, task: Working, chunk: Chunk) -> None:
        task.over = task.over or chunk.last
        if not chunk.last:
            task.chunks.append(chunk.data)

    def poll(self, task: Working, now: float) -> Ready | Wait:
        return Ready() if task.chunks or task.over else Wait()

    def step(self, batch: Sequence[Working], emit: Emit) -> None:
        for task in batch:
            if task.chunks:
                emit.chunk(task, task.chunks.pop(0))
            else:
                emit.result(task)


class Odd(Scripted):
    """Sends what cannot travel."""

    def step(self, batch: Sequence[Working], emit: Emit) -> None:
        for task in batch:
            emit.result(task, {"thing": object()})


class Environs(Scripted):
    """Tells what its process started with."""

    def step(self, batch: Sequence[Working], emit: Emit) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ANTIPHON_TEST")
        for task in batch:
            emit.result(task, {name: os.environ.get(name) for name in names})


class Broken(Scripted):
    def warm_up(self) -> None:
        raise ConfigError("weights are not here; run `antiphon models pull`")


class Vanishing(Scripted):
    """Ends its process while it loads."""

    def warm_up(self) -> None:
        os._exit(9)


def _hold_the_interpreter() -> None:
    """A step in native code that never gives the interpreter back: nothing else in the process runs."""
    import ctypes

    ctypes.PyDLL(None).sleep(3600)


def build(
    place: str = "apart",
    relay: str = "",
    credits: int = 8,
    factories: dict[str, str] | None = None,
    load_s: float = 0.0,
    max_open: int = 32,
) -> PipelineConfig:
    """``place``: a key of PLACES. ``factories``: another class for a stage."""
    stages = []
    for name, following in zip(NAMES, (*NAMES[1:], None), strict=True):
        cls = (factories or {}).get(name, "Source" if name == "source" else "Double")
        more: dict[str, Any] = {"terminal": "out"} if following is None else {"stream_to": (following,)}
        args: dict[str, Any] = {"name": name} if cls.startswith("Async") else {"name": name, "load_s": load_s}
        stages.append(
            StageConfig(
                name=name,
                factory=f"{HERE}:{cls}",
                factory_args=args,
                process=PLACES[place][name],
                lane=name,
                relay=relay,
                credits=credits,
                max_open=max_open,
                **more,
            )
        )
    return PipelineConfig("scripted", "source", stages)


def single(cls: str, process: str = "model") -> PipelineConfig:
    """One stage alone."""
    stage = StageConfig(name="only", factory=f"{HERE}:{cls}", factory_args={"name": "only"}, process=process, terminal="out")
    return PipelineConfig("single", "only", [stage])


def voice() -> PipelineConfig:
    """The real voice alone, as the local pipeline declares it: nothing else is loaded."""
    from antiphon.pipelines.local.pipeline import build as whole

    stages = [s for s in whole().stages.values() if s.name in ("segmenter", "talker", "code2wav")]
    return PipelineConfig("voice", "segmenter", stages)


def by_terminal(request: Request) -> tuple[str, ...]:
    return request.terminals


def fork(load_s: float = 0.0, source: str = "main") -> PipelineConfig:
    """source (in the process of that name) -> left or right, each a process; the terminal of the same name says which."""
    args = {"load_s": load_s}
    sides = [
        StageConfig(
            name=n, factory=f"{HERE}:Double", factory_args={"name": n, **args}, process=n, lane=n, terminal=n, max_open=32
        )
        for n in ("left", "right")
    ]
    first = StageConfig(
        name="source",
        factory=f"{HERE}:Source",
        factory_args={"name": "source"},
        process=source,
        lane="source",
        stream_to=("left", "right"),
        route_fn=by_terminal,
        max_open=64,
    )
    return PipelineConfig("fork", "source", [first, *sides])


def aside() -> PipelineConfig:
    """source -> tail (terminal "out") and side (terminal "extra"), a side stage in a process of its own."""
    return PipelineConfig(
        "aside",
        "source",
        [
            StageConfig(
                name="source",
                factory=f"{HERE}:Source",
                factory_args={"name": "source"},
                lane="source",
                stream_to=("tail", "side"),
                credits=4,
            ),
            StageConfig(name="tail", factory=f"{HERE}:Double", factory_args={"name": "tail"}, lane="tail", terminal="out"),
            StageConfig(
                name="side",
                factory=f"{HERE}:Double",
                factory_args={"name": "side"},
                process="side",
                lane="side",
                terminal="extra",
                side=True,
            ),
        ],
    )


def spec(**args: Any) -> PipelineSpec:
    return PipelineSpec(f"{HERE}:build", args)


def ask(name: str, conversation: str = "", terminal: str = "out", **scripts: dict[str, Any]) -> GenerateRequest:
    """A request; scripts by stage."""
    return GenerateRequest(id=name, task="speech", terminals=(terminal,), conversation=conversation, stage_params=scripts)
