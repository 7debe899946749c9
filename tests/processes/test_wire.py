"""Between processes: only known messages are read, and whoever sends something else changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.graph import Plan
from antiphon.pipelines.messages import Close, Credit, Event, Failed, Feed, Forget, Give, Open, Receipt, Spent, Tell
from antiphon.pipelines.outputs import TextDelta
from antiphon.pipelines.relay.payload import STRUCT, Registry
from antiphon.pipelines.relay.segments import Attached, Pool
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.run_folder import RunFolder
from antiphon.pipelines.stage import Request
from antiphon.pipelines.wire import (
    Beat,
    Begin,
    Body,
    Gone,
    LaneReady,
    Links,
    Mail,
    Peers,
    Post,
    Reader,
    StartFailed,
    Stop,
    ToDoor,
    ToWorker,
    Up,
    inbox,
    summed,
)

KEY = ("r", 1)
PLAN = Plan(
    ("a", "b"),
    {"a": (), "b": ()},
    {"a": ("b",), "b": ()},
    {"b": frozenset()},
    {"b": frozenset(("a",))},
    {"out": "b"},
    frozenset("b"),
)
OPEN = Open(
    KEY, Request(id="r", terminals=("out",), body=GenerateRequest(id="r", task="speech", terminals=("out",))), PLAN, 0.0
)
TO_WORKER = [
    Begin(("x",), OPEN, {"model": "model.0"}, True),
    Body(KEY, "a"),
    Mail((), Give(KEY, "b", "a", {"x": (1,)}, False)),
    Mail((), Feed(KEY, "b", "a", 0, TextDelta("t"), span_ms=1.5)),
    Mail((), Credit(KEY, "a", "b")),
    Mail(("x", "y"), Tell(KEY, 1.0, None, 4000.0, "early")),
    Mail(("x",), Close(KEY, "aborted")),
    Mail(("x",), Forget("c")),
    Peers({"model.0": "model.0.1"}),
    Gone("model.0", "model.0.0"),
    Stop(),
]
TO_DOOR = [
    Post((Spent(KEY, "a", 0.1, 3, 0.2), Event(KEY, "out", "b", 0, TextDelta("t")))),
    Post((Failed(KEY, "a", "m", "c"),)),
    Post((Receipt(KEY, "x"),)),
    LaneReady("model.0.0", "x"),
    Up("model.0.0"),
    StartFailed("model.0.0", "ConfigError", "why"),
    Beat("model.0.0", {"x": ("a", 1.5)}),
]


class Sockets:
    def __init__(self) -> None:
        self.run = RunFolder()
        self.context: zmq.Context[Any] = zmq.Context()
        registry, attached = Registry(), Attached(self.run.path)
        self.links = Links(self.context, self.run.path, registry, Pool(self.run.path, "here"), attached)
        self.links.owners["there"] = "there.0"
        self.inbox = inbox(self.context, self.run.path, "there.0")
        self.worker = Reader(ToWorker, registry, attached)
        self.door = Reader(ToDoor, registry, attached)


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    found = Sockets()
    yield found
    found.links.close_here()
    found.inbox.close(0)
    found.context.destroy(0)
    found.run.close()


@pytest.mark.parametrize("message", [*TO_WORKER, *TO_DOOR], ids=lambda m: type(m).__name__)
def test_every_message_arrives_as_it_was_sent(sockets: Sockets, message: Any) -> None:
    assert sockets.links.send("there", message)
    frame = sockets.inbox.recv()
    reader, other = (sockets.worker, sockets.door) if message in TO_WORKER else (sockets.door, sockets.worker)
    assert reader.read(frame) == message
    if not isinstance(message, Mail):  # the one kind that both read: lanes of the door are lanes too
        with pytest.raises(WireError, match="refused"):
            other.read(frame)


def test_a_thousand_messages_of_one_thread_stay_in_order(sockets: Sockets) -> None:
    for n in range(1000):
        sockets.links.send("there", Mail((), Feed(KEY, "b", "a", n, "x" * (n % 50))))
    assert [sockets.worker.read(sockets.inbox.recv()).message.index for _ in range(1000)] == list(range(1000))


def test_a_process_that_is_not_up_is_told_nothing(sockets: Sockets) -> None:
    assert not sockets.links.send("nobody", Stop())
    sockets.links.send("there", Up("1"))
    assert sockets.door.read(sockets.inbox.recv()) == Up("1")  # what is still unsent to a life that has ended is dropped
    sockets.links.owners["there"] = "there.1"
    later = inbox(sockets.context, sockets.run.path, "there.1")
    sockets.links.send("there", Up("2"))
    assert sockets.door.read(later.recv()) == Up("2"), "its next life is another address"
    later.close(0)


def test_rubbish_is_refused(sockets: Sockets) -> None:
    encode = msgspec.msgpack.encode
    frames = [
        b"",
        b"\xc1",
        b"\x00",
        encode([]),
        encode(["mail"]),
        encode(["unknown", 1]),
        encode({"type": "stop"}),
        encode(["stop", 1]),
    ]
    frames += [
        encode(["mail", [], {"type": "Shout", "key": ["r", 1]}]),
        encode(["mail", [], {"type": "Close", "key": ["r", 1]}]),
    ]
    frames += [encode(["mail", "x", {"type": "Forget", "conversation": "c"}]), encode(["peers", {"a": 3}])]
    chance = random.Random(5)
    good = encode(TO_WORKER[6])
    frames += [chance.randbytes(chance.randrange(1, 60)) for _ in range(300)]
    frames += [good[:n] for n in range(len(good))]
    for frame in frames:
        with pytest.raises(WireError):
            sockets.worker.read(frame)
        assert sockets.worker.failure(frame) is None


def test_a_payload_that_cannot_be_read_fails_its_request_and_no_more(sockets: Sockets) -> None:
    ext = msgspec.msgpack.Ext(STRUCT, b"\x09os:system" + b"\x80")
    frame = msgspec.msgpack.encode(Mail((), Feed(KEY, "b", "a", 0, ext)))
    with pytest.raises(WireError):
        sockets.worker.read(frame)
    failed = sockets.worker.failure(frame)
    assert failed is not None and (failed.key, failed.stage) == (KEY, "a") and "os" not in failed.message


@pytest.mark.parametrize("data", [object(), "\ud800", 2**80, {"a": {1j}}], ids=str)
def test_what_cannot_be_sent_is_said_to_the_sender(sockets: Sockets, data: Any) -> None:
    with pytest.raises(WireError):
        sockets.links.send("there", Mail((), Feed(KEY, "b", "a", 0, data)))
    assert sockets.links.send("there", Stop()), "the socket is as good as before"
    assert sockets.worker.read(sockets.inbox.recv()) == Stop()


@pytest.mark.parametrize(("credits", "messages"), [(1, 100), (2, 100), (8, 25), (4096, 0)])
def test_credits_are_summed_to_half_a_window(credits: int, messages: int) -> None:
    owed: dict[tuple[str, str], int] = {}
    at_once = max(1, credits // 2)
    sent = [c for c in (summed(owed, Credit(KEY, "a", "b"), at_once) for _ in range(100)) if c is not None]
    assert len(sent) == messages
    assert sum(c.count for c in sent) + owed.get(("a", "b"), 0) == 100, "none is lost"
    assert owed.get(("a", "b"), 0) < at_once, "the sender always has half of its window"
    assert summed(owed, Credit(KEY, "a", "other"), 2) is None, "each edge has its own"
