"""The contract that a stage's author implements, and nothing else.

Every kind of stage is a step over the tasks that are ready (iteration-level scheduling: Yu et al., "Orca", OSDI 2022).
The runtime owns queues, credits, deadlines, processes; an author sees one request at a time as a *task* of his own type.

All calls of one stage come from its lane's thread, one at a time, never from inside one another. An exception out of
``open``, ``feed``, ``poll`` or ``tell`` fails that task; out of ``close`` it is logged and the slot returns; out of
``step`` it fails the batch, except tasks that had already ended in it. Raise ``errors.Refused`` for a client's fault and
``errors.StageFailed`` for one of yours: their text reaches the client; the text of any other exception does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

Task = TypeVar("Task")
Reason = Literal["finished", "aborted", "failed"]
Kind = Literal["generate", "prepare"]
Listener = Literal["confirmed", "early", "none"]
CLIENT = "client"
"""The name under which a request's own client is an upstream of the entry and the reader of terminals."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the graph knows of a request: no medium, no model.

    ``body`` is the family's own request (``requests.GenerateRequest``); route functions and stages read it.
    ``conversation`` is opaque: affinity and caches. ``streams_input``: the client will feed the entry stage.
    """

    id: str
    terminals: tuple[str, ...] = ()
    body: Any = None
    kind: Kind = "generate"
    conversation: str = ""
    listener: Listener = "confirmed"
    streams_input: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a stream. The runtime sets everything but ``data``; the empty ``last`` chunk ends the stream."""

    source: str
    index: int
    data: Any
    last: bool = False
    span_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The task can be stepped now. ``cost`` in the lane's units (tokens, frames); ``hungry``: feed it all the same."""

    cost: int = 1
    hungry: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """The task cannot be stepped, at the latest until ``until`` (the clock given to ``poll``) if that is set.

    ``hungry``: feed it while it waits.
    """

    until: float | None = None
    hungry: bool = True


READY = Ready()
WAIT = Wait()
Inputs = Any
"""What ``open`` gets: the one upstream Result, or what ``merge_fn`` made of several; the entry gets the request's body."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the listener has heard, told on change. ``due_in_ms`` is relative to when it was told."""

    due_in_ms: float
    heard_ms: float | None
    window_ms: float
    listener: Listener


class Emit(Protocol):
    """What a step may say. Only for tasks of its batch that have not ended."""

    def chunk(self, task: Any, data: Any, span_ms: float = 0.0) -> None:
        """Send a piece on every live stream and terminal of this stage; ``span_ms`` is its playing time."""

    def result(self, task: Any, data: Any = None) -> None:
        """End the task: its Result goes to every live ``next``, its streams and its terminal end."""

    def failure(self, task: Any, error: Exception) -> None:
        """End the task and, unless the stage is a side stage, its request."""


class Fence(Protocol):
    """The device's last work for a task (on a GPU: an event recorded after its last kernel)."""

    def done(self) -> bool: ...


class Stage(Generic[Task]):
    """A stage that is stepped. ``open``/``feed``/``close`` are cheap; work is done in ``step``."""

    def warm_up(self) -> None:
        """Load and run once, so that ready means warm. Called on the lane's thread before any task."""

    def open(self, request: Request, inputs: Inputs) -> Task:
        """A new task; chunks are fed after it, never passed to it."""
        raise NotImplementedError

    def feed(self, task: Task, chunk: Chunk) -> None:
        """One upstream chunk, in order per source; ``chunk.last`` carries no data."""
        raise NotImplementedError

    def poll(self, task: Task, now: float) -> Ready | Wait:
        """Pure: can this task be stepped? Called often."""
        return READY

    def step(self, batch: Sequence[Task], emit: Emit) -> None:
        """Advance these tasks once, emitting a handful of chunks at most for each."""
        raise NotImplementedError

    def close(self, task: Task, reason: Reason) -> Fence | None:
        """Exactly once per opened task, at every end."""
        return None

    def tell(self, task: Task, progress: Progress) -> None:
        """Optional: the listener's progress (an early answer was confirmed, say). What a stage says does not depend on it; when
        it is said may: one that gathers before it sounds must not gather more than the window that holds its upstream."""

    def fatal(self, error: Exception) -> bool:
        """Optional: whether after this error, out of any call of this stage, nothing that its process does works any more (a
        device that is lost). Then no task fails by it: the process ends, and is started again."""
        return False

    def forget(self, conversation: str) -> None:
        """Optional: drop this conversation's cache. Called while no task of it is open."""

    def shut_down(self) -> None:
        """Optional: the lane ends; free what is not memory."""


@dataclass(frozen=True, slots=True)
class Output:
    """What an async twin yields: a piece of its stream, or (``result=True``) its Result, after which it must return."""

    data: Any = None
    result: bool = False
    span_ms: float = 0.0


class AsyncStage:
    """The async twin: a stage that waits on a network, or an engine with a batching of its own.

    One coroutine runs per task, on the event loop of the stage's lane. It is cancelled when the request ends;
    ``run`` must let ``CancelledError`` through after awaiting the engine's own confirmation, for when it has returned the
    task counts as released. Yielding waits for credit and for the listener's window.
    """

    async def warm_up(self) -> None: ...

    def run(self, request: Request, inputs: Inputs, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Output]:
        """Write it as an async generator. ``chunks`` ends after the last chunk of the last live upstream."""
        raise NotImplementedError

    async def forget(self, conversation: str) -> None: ...

    async def shut_down(self) -> None: ...


Merge = Mapping[str, Any]
"""What a ``merge_fn(request, results)`` gets second: the live, unskipped upstreams' Results by stage name."""
