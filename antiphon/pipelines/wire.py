"""What travels between processes, and the sockets it travels on.

msgpack in plain ZeroMQ sockets: every process binds one PULL socket in the run folder, and every thread that sends has a
PUSH socket of its own to each process it sends to, so one thread's messages to one process stay in order and no thread
waits for another. The sockets have no high-water mark: credits, admission and the watchdog bound what can be in them.
Only these messages are read; anything else is refused.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import msgspec
import zmq

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.graph import MAIN_PROCESS
from antiphon.pipelines.messages import Credit, Event, Failed, Feed, Give, Key, Open, ToCoordinator, ToLane
from antiphon.pipelines.relay.payload import Packer, Registry, Unpacker
from antiphon.pipelines.relay.ref import Kind
from antiphon.pipelines.relay.relays import Shared
from antiphon.pipelines.relay.segments import Attached, Pool

log = logging.getLogger("antiphon.wire")

DOOR = MAIN_PROCESS
"""The name of the door's own process among the others."""


class Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is said between processes beside the graph's own messages."""


class Mail(Wire, frozen=True, tag="mail"):
    """For these lanes; () is the lane of the message's own stage."""

    lanes: tuple[str, ...]
    message: ToLane


class Begin(Wire, frozen=True, tag="begin"):
    """A request's Open for all lanes of a process. ``places``: which process of each group serves it.

    ``start``: the entry is here and nobody else need know the request first, so give it the body at once.
    """

    lanes: tuple[str, ...]
    message: Open
    places: dict[str, str]
    acknowledge: bool
    start: bool = False


class Body(Wire, frozen=True, tag="body"):
    """To the entry's process: give the entry the request's body, which came with Begin."""

    key: Key
    stage: str


class Peers(Wire, frozen=True, tag="peers"):
    """Who is up: process -> the name of its present life."""

    owners: dict[str, str]


class Gone(Wire, frozen=True, tag="gone"):
    """A process has ended: its slots are free, what comes from it is late."""

    name: str
    owner: str


class Stop(Wire, frozen=True, tag="stop"):
    """End the lanes, free what they hold, and go."""


class Post(Wire, frozen=True, tag="post"):
    """For the coordinator, in order: what a lane had to say at once."""

    messages: tuple[ToCoordinator, ...]


class LaneReady(Wire, frozen=True, tag="lane_ready"):
    owner: str
    lane: str


class Up(Wire, frozen=True, tag="up"):
    """Every lane is warm."""

    owner: str


class StartFailed(Wire, frozen=True, tag="start_failed"):
    """``kind`` is the class of the error: a ConfigError or WeightError keeps its text."""

    owner: str
    kind: str
    message: str


class Beat(Wire, frozen=True, tag="beat"):
    """A sign of life, and the steps under way: lane -> stage, seconds."""

    owner: str
    stepping: dict[str, tuple[str, float]]


ToWorker = Mail | Begin | Body | Peers | Gone | Stop
ToDoor = Mail | Post | LaneReady | Up | StartFailed | Beat
Message = ToWorker | ToDoor


class Reader:
    """Decodes frames of one kind, on one thread."""

    def __init__(self, kinds: Any, registry: Registry, attached: Attached) -> None:
        self._decoder = msgspec.msgpack.Decoder(kinds, ext_hook=Unpacker(registry, attached).hook)
        self._without_data = msgspec.msgpack.Decoder(kinds, ext_hook=lambda code, data: None)

    def read(self, frame: bytes) -> Any:
        """Raises WireError: an unknown message, or a payload that cannot be read."""
        try:
            return self._decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a message was refused: {error}") from error

    def failure(self, frame: bytes) -> Failed | None:
        """What to tell of a frame that could not be read: its request fails rather than wait for ever."""
        try:
            found = self._without_data.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return untravelled(found)


def untravelled(carrier: Message) -> Failed | None:
    """The end of a request one of whose messages could not travel."""
    if isinstance(carrier, Post):
        message: Any = carrier.messages[-1]
    elif isinstance(carrier, Mail | Begin):
        message = carrier.message
    else:
        return None
    key = getattr(message, "key", None)
    if key is None or isinstance(message, Failed):
        return None
    stage = getattr(message, "source", "") or getattr(message, "stage", "") or "the graph"
    return Failed(key, stage, "The model failed to process this request.", "model_error")


def summed(owed: dict[tuple[str, str], int], message: Credit, at_once: int) -> Credit | None:
    """A credit to be sent, for all that are owed on its edge; None when it can wait for the next."""
    edge = (message.stage, message.target)
    count = owed.get(edge, 0) + message.count
    if count < at_once:
        owed[edge] = count
        return None
    owed[edge] = 0
    return Credit(message.key, message.stage, message.target, count)


class Link:
    """One thread's way to one process."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, packer: Packer) -> None:
        self._packer = packer
        self._encoder = msgspec.msgpack.Encoder()
        self._socket = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.connect(endpoint)

    def send(self, message: Message, mode: Kind | None) -> None:
        """Raises WireError when the payload cannot travel."""
        try:
            frame = self._encoder.encode(self._packed(message, mode))
            self._socket.send(frame, zmq.NOBLOCK)
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise WireError(f"a {type(message).__name__} cannot travel: {type(error).__name__}") from error
        except zmq.ZMQError as error:
            raise WireError(f"a message could not be sent: {error.strerror}") from error

    def close(self, linger_ms: int = 0) -> None:
        self._socket.close(linger_ms)

    def _packed(self, message: Message, mode: Kind | None) -> Message:
        replace = msgspec.structs.replace
        match message:
            case Mail(message=Give() | Feed() as inner) if inner.data is not None:
                return Mail(message.lanes, replace(inner, data=self._packer.pack(inner.data, mode)))
            case Post(messages=(*before, Event() as event)) if event.data is not None:
                return Post((*before, replace(event, data=self._packer.pack(event.data, mode))))
            case Begin(message=Open(request=request) as opening):
                body = self._packer.pack(request.body)
                return replace(message, message=replace(opening, request=replace(request, body=body)))
            case _:
                return message


class Links:
    """All ways of one process to the others. ``owners`` may be changed by one thread while others send."""

    def __init__(self, context: zmq.Context[Any], folder: Path, registry: Registry, pool: Pool, attached: Attached) -> None:
        self.owners: dict[str, str] = {}
        self._context = context
        self._folder = folder
        self._registry = registry
        self._pool = pool
        self._attached = attached
        self._here = threading.local()

    def send(self, name: str, message: Message, mode: Kind | None = None) -> bool:
        """False when that process is not up: what is meant for it is late. Raises WireError."""
        owner = self.owners.get(name)
        if owner is None:
            return False
        links: dict[str, tuple[str, Link]] = self._here.__dict__.setdefault("links", {})
        held = links.get(name)
        if held is None or held[0] != owner:
            if held is not None:
                held[1].close()
            held = links[name] = (owner, self._link(owner))
        held[1].send(message, mode)
        return True

    def _link(self, owner: str) -> Link:
        shared = Shared(self._pool, owner, self._attached)
        return Link(self._context, endpoint(self._folder, owner), Packer(self._registry, shared.put))

    def close_here(self, linger_ms: int = 0) -> None:
        """Close this thread's sockets."""
        for _, link in self._here.__dict__.pop("links", {}).values():
            link.close(linger_ms)


def endpoint(folder: Path, owner: str) -> str:
    """Where a process is reached. Short: a Unix socket's path holds about a hundred bytes."""
    return f"ipc://{folder}/{owner}.sock"


def inbox(context: zmq.Context[Any], folder: Path, owner: str) -> zmq.Socket[bytes]:
    """The one socket that a process reads."""
    socket: zmq.Socket[bytes] = context.socket(zmq.PULL)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.bind(endpoint(folder, owner))
    return socket


def descriptor(socket: zmq.Socket[bytes]) -> int:
    """For an event loop. It tells of a change only: whoever is woken reads until there is nothing."""
    return int(socket.getsockopt(zmq.FD))
