"""One process of the graph: ``python -m antiphon.pipelines.worker``, told what to do on its standard input.

The main thread reads the inbox and nothing else, so that mail, acknowledgements and signs of life never wait for a step.
The process ends with its parent, however that ends: by the kernel's word on Linux, and by the end of its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import msgspec
import zmq

from antiphon.pipelines.errors import ConfigError, PipelineError, WireError
from antiphon.pipelines.lane_thread import LaneThread
from antiphon.pipelines.messages import Close, Credit, Event, Feed, Give, Key, Opened, Receipt, Spent, ToCoordinator, ToLane
from antiphon.pipelines.placement import WorkerSpec, credits_at_once, packages, settle
from antiphon.pipelines.relay.ref import Kind
from antiphon.pipelines.sockets import Sockets
from antiphon.pipelines.stage import CLIENT, Request
from antiphon.pipelines.wire import (
    DOOR,
    Beat,
    Begin,
    Body,
    Gone,
    LaneReady,
    Mail,
    Peers,
    Post,
    StartFailed,
    Stop,
    ToDoor,
    ToWorker,
    Up,
    summed,
    untravelled,
)  # fmt: skip

log = logging.getLogger("antiphon.worker")

SWITCH_INTERVAL_S = 0.0005
"""A lane in pure Python gives way to the mail after this, not after the interpreter's 5 ms."""
JOIN_S = 10.0
LAST_WORDS_MS = 5000
BEAT_S = 0.5
LANE_ENDED = 70
"""Exit status when a lane ended by an error of the runtime: the process is no good any more."""


class Known:
    """A request under way in this process."""

    __slots__ = ("lanes", "owed", "places", "request")

    def __init__(self, begin: Begin) -> None:
        self.request: Request = begin.message.request
        self.places = begin.places
        self.lanes = set(begin.lanes)
        self.owed: dict[tuple[str, str], int] = {}
        """(stage elsewhere, stage here) -> credits not sent yet; each is counted by the one lane of the stage here."""


class Worker:
    """Lanes, and their Exchange with the rest of the graph."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self._sockets = Sockets(Path(spec.folder), spec.owner, ToWorker)
        self._reader = self._sockets.reader
        self.links = self._sockets.links
        self.links.owners[DOOR] = spec.door
        self._known: dict[Key, Known] = {}
        self._lanes: dict[str, LaneThread] = {}
        self._ready: set[str] = set()
        self._held = threading.local()
        self._beat_s = min(BEAT_S, spec.step_limit_s / 4)

    # -- life
    def build(self) -> None:
        """Build the declaration and start this process's lanes. Raises PipelineError."""
        self.config = settle(self.spec.pipeline.build())
        self._sockets.registry.packages |= packages(self.config, self.spec.pipeline)
        self._process_of = {name: s.process for name, s in self.config.stages.items()}
        self._lane_of = {name: s.lane for name, s in self.config.stages.items()}
        self._mode_of: dict[str, Kind | None] = {name: s.relay or None for name, s in self.config.stages.items()}  # type: ignore[misc]
        self._at_once = credits_at_once(self.config)
        self._sockets.pool.prepare()
        for name, stages in self.config.lanes.items():
            if stages[0].process == self.spec.process:
                self._lanes[name] = LaneThread(name, self.config, stages, self, ready=self._lane_ready, died=self._lane_died)
        for lane in self._lanes.values():
            lane.start()

    def serve(self) -> None:
        """Read mail until told to stop."""
        self._sockets.inbox.setsockopt(zmq.RCVTIMEO, max(1, int(self._beat_s * 1000)))
        next_beat = 0.0
        while True:
            now = time.monotonic()
            if now >= next_beat:
                self._beat(now)
                next_beat = now + self._beat_s
            try:
                frame = self._sockets.inbox.recv()
            except zmq.Again:
                continue
            if self._take(frame):
                return

    def stop(self) -> None:
        """Steps under way end; stages free what they hold."""
        for lane in self._lanes.values():
            lane.stop()
        for name, lane in self._lanes.items():
            if not lane.join(JOIN_S):
                log.error("lane %s did not end within %.0f s", name, JOIN_S)

    def tell(self, message: ToDoor) -> None:
        self.links.send(DOOR, message)

    def _beat(self, now: float) -> None:
        steps = {name: lane.stepping for name, lane in self._lanes.items()}
        self.tell(Beat(self.spec.owner, {name: (s[0], now - s[1]) for name, s in steps.items() if s is not None}))

    # -- on lane threads
    def _lane_ready(self, name: str) -> None:
        self._ready.add(name)
        self.tell(LaneReady(self.spec.owner, name))
        if self._ready == self._lanes.keys():
            self.tell(Up(self.spec.owner))

    def _lane_died(self, name: str, error: Exception) -> None:
        if name not in self._ready:
            start_failed(self, name, error)
            return
        log.critical("lane %s ended by a %s; so does the process", name, type(error).__name__)
        leave(LANE_ENDED)

    # -- mail
    def _take(self, frame: bytes) -> bool:
        """True when it was the last."""
        try:
            message: ToWorker = self._reader.read(frame)
            if isinstance(message, Stop):
                return True
            self._handle(message)
        except WireError as error:
            log.error("%s", error)
            failed = self._reader.failure(frame)
            if failed is not None:
                self.to_coordinator(failed)
        return False

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Mail(lanes=(), message=inner):
                self._local(self._lane_for(inner)).put(inner)
            case Mail(lanes=lanes, message=inner):
                if isinstance(inner, Close):
                    self._close(lanes, inner)
                    return
                for lane in lanes:
                    self._local(lane).put(inner)
            case Begin():
                self._begin(message)
            case Body(key=key, stage=stage):
                known = self._known.get(key)
                if known is not None:
                    self._local(self._lane_of[stage]).put(Give(key, stage, CLIENT, known.request.body))
            case Peers(owners=owners):
                for name, owner in owners.items():
                    self.links.owners[name] = owner
            case Gone(name=name, owner=owner):
                self._sockets.peer_gone(name, owner)

    def _lane_for(self, message: ToLane) -> str:
        stage = getattr(message, "stage", "")
        if stage not in self._lane_of:
            raise WireError(f"mail for an unknown stage {stage!r} was refused")
        return self._lane_of[stage]

    def _local(self, lane: str) -> LaneThread:
        if lane not in self._ready:
            raise WireError(f"mail for lane {lane!r} came to process {self.spec.name!r}, which has none or not yet: refused")
        return self._lanes[lane]

    def _begin(self, message: Begin) -> None:
        opening = message.message
        lanes = [self._local(lane) for lane in message.lanes]
        self._known[opening.key] = Known(message)
        for lane in lanes:
            lane.put(opening)
        if message.start:
            entry = self.config.entry
            self._local(self._lane_of[entry]).put(Give(opening.key, entry, CLIENT, opening.request.body))
        if message.acknowledge:
            self.to_coordinator(Opened(opening.key, self.spec.process))

    def _close(self, lanes: tuple[str, ...], message: Close) -> None:
        known = self._known.get(message.key)
        for lane in lanes:
            if known is None:  # its Open could not travel
                self.to_coordinator(Receipt(message.key, lane))
            else:
                self._local(lane).put(message)
                known.lanes.discard(lane)
        if known is not None and not known.lanes:
            del self._known[message.key]

    # -- Exchange, on lane threads
    def to_stage(self, stage: str, message: ToLane) -> None:
        process = self._process_of[stage]
        if process == self.spec.process:
            self._lanes[self._lane_of[stage]].put(message)
            return
        known = self._known.get(message.key)  # type: ignore[union-attr]
        if known is None:  # the request was closed here a moment ago: nobody waits for this
            return
        if isinstance(message, Credit):
            credit = summed(known.owed, message, self._at_once[stage])
            if credit is None:
                return
            message = credit
        place = known.places.get(process)
        if place is None:  # a side stage that was not there when the request came
            return
        mode = self._mode_of[message.source] if isinstance(message, Give | Feed) else None
        self._send(place, Mail((), message), mode)

    def to_coordinator(self, message: ToCoordinator) -> None:
        held: list[ToCoordinator] = self._held.__dict__.setdefault("spent", [])
        held.append(message)
        if isinstance(message, Spent):  # in no hurry: it goes with the next, at the latest with the receipt
            return
        post = Post(tuple(held))
        held.clear()
        self._send(DOOR, post, self._mode_of[message.stage] if isinstance(message, Event) else None)

    def _send(self, name: str, message: Mail | Post, mode: Kind | None) -> None:
        try:
            self.links.send(name, message, mode)
        except WireError as error:
            log.error("%s", error)
            failed = untravelled(message)
            if failed is not None:
                self.tell(Post((failed,)))


def start_failed(worker: Worker, where: str, error: Exception) -> None:
    """Tell the door by name why this process cannot serve."""
    if isinstance(error, PipelineError):
        message = StartFailed(worker.spec.owner, type(error).__name__, str(error))
    else:
        log.error("%s could not start", where, exc_info=error)
        message = StartFailed(worker.spec.owner, "StageFailed", f"{where}: could not start: {type(error).__name__}: {error}")
    worker.tell(message)
    worker.links.close_here(LAST_WORDS_MS)  # this thread may be about to end: a closed socket still sends what it has


def leave(status: int) -> NoReturn:
    """End at once: native libraries' own destructors have no part in it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def die_with_parent(parent: int) -> None:
    """On Linux the kernel kills this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before that
        leave(1)


def _watch_parent(stream: int) -> None:
    while os.read(stream, 4096):
        pass
    leave(0)


def read_spec(stream: int) -> tuple[WorkerSpec, int]:
    """The spec and the parent's process id; after them the stream only tells, by its end, that the parent is gone."""
    size = int.from_bytes(_exactly(stream, 4), "big")
    spec, parent = msgspec.msgpack.decode(_exactly(stream, size), type=tuple[WorkerSpec, int])
    return spec, parent


def _exactly(stream: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(stream, size - len(data))
        if not piece:
            leave(1)
        data += piece
    return data


def set_up_logging(name: str, level: int) -> None:
    logging.basicConfig(level=level, format=f"%(levelname)s:{name}:%(name)s:%(message)s")
    for noisy in ("httpx", "httpcore"):  # they write every address that is asked, with the password in it
        logging.getLogger(noisy).setLevel(logging.WARNING)


def main() -> None:
    spec, parent = read_spec(0)
    die_with_parent(parent)
    for ignored in (signal.SIGTERM, signal.SIGINT):  # the door says when: it may have answers to finish
        signal.signal(ignored, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    sys.path.extend(p for p in spec.sys_path if p not in sys.path)
    set_up_logging(spec.name, spec.log_level)
    threading.Thread(target=_watch_parent, args=(0,), name="parent", daemon=True).start()
    worker = Worker(spec)
    try:
        worker.build()
    except Exception as error:  # noqa: BLE001 - the builder's code: the door is told by name, and ends this process
        known = error if isinstance(error, PipelineError) else ConfigError(f"{spec.pipeline.builder}: {error}")
        start_failed(worker, spec.name, known)
    worker.serve()
    worker.stop()
    leave(0)


if __name__ == "__main__":
    main()
