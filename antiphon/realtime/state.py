"""What all doors of one server share: the pipeline's client, keys, limits, metrics, traces, settings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from antiphon.pipelines.client import Event
from antiphon.pipelines.errors import PipelineError
from antiphon.pipelines.info import PipelineInfo
from antiphon.pipelines.requests import GenerateRequest
from antiphon.pipelines.stage import Listener
from antiphon.realtime.auth import Keys
from antiphon.realtime.errors import Unavailable
from antiphon.realtime.limits import Admission
from antiphon.realtime.metrics import Metrics
from antiphon.realtime.rest.audio_answers import AudioAnswers
from antiphon.realtime.settings import Settings
from antiphon.realtime.tracing import Traces

log = logging.getLogger("antiphon.server")


class Generation(Protocol):
    """What the doors use of ``pipelines.client.Generation``."""

    @property
    def timeline(self) -> dict[str, float]: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def abort(self, reason: str = ...) -> None: ...

    def tell(
        self, *, due_in_ms: float, heard_ms: float | None = ..., window_ms: float | None = ..., listener: Listener | None = ...
    ) -> None: ...

    def released(self) -> Awaitable[Any]: ...


class Client(Protocol):
    """What the doors use of ``pipelines.client.Client``."""

    @property
    def info(self) -> PipelineInfo: ...

    async def start(self, progress: Callable[[str], None] | None = None) -> None: ...

    async def stop(self) -> None: ...

    def generate(self, request: GenerateRequest) -> Generation: ...

    def forget(self, conversation: str) -> None: ...

    def health(self) -> Mapping[str, Any]: ...

    def stats(self) -> Mapping[str, Any]: ...


class State:
    """One server. ``client_factory`` is called once, on the server's own event loop."""

    def __init__(self, settings: Settings, client_factory: Callable[[], Client]) -> None:
        self.settings = settings
        self.keys = Keys(settings.api_keys, clock=time.time)
        self.admission = Admission(settings.limits, time.monotonic)
        self.metrics = Metrics()
        self.traces = Traces()
        self.audio_answers = AudioAnswers(settings.audio_answer_s, time.time)
        self.started_at = int(time.time())
        self.realtime = settings.realtime
        """Whether /v1/realtime is really served."""
        self.failure: PipelineError | None = None
        self._client_factory = client_factory
        self._client: Client | None = None
        self._ending: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._aside: set[asyncio.Task[Any]] = set()

    @property
    def ready(self) -> bool:
        """Every stage has run once, and the server is not closing."""
        return self._ready.is_set() and not self.admission.closing

    @property
    def client(self) -> Client:
        """The running pipeline. Raises ``Unavailable`` before it is warm, when it failed to start, and while closing."""
        if self.admission.closing:
            raise Unavailable("The server is shutting down.", code="server_shutting_down", retry_after_s=10.0)
        if self.failure is not None:
            raise Unavailable("The pipeline did not start; see /health.", code="start_failed", retry_after_s=60.0)
        if self._client is None or not self._ready.is_set():
            raise Unavailable("The models are still being loaded.", code="starting", retry_after_s=2.0)
        return self._client

    @property
    def info(self) -> PipelineInfo:
        """What the running pipeline can do; raises like ``client``."""
        return self.client.info

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Build the client and warm it up. Raises what the pipeline raises; it is also kept in ``failure``."""
        try:
            self._client = self._client_factory()
            await self._client.start(progress)
        except PipelineError as error:
            self.failure = error
            self._client = None
            raise
        self.metrics.watch_graph(self._client.stats)
        self._ready.set()

    def end(self) -> None:
        """Begin to stop: refuse what is new, abort what runs (each is told why), end the lanes."""
        self.admission.closing = True
        if self._client is not None and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._client.stop())

    async def stop(self) -> None:
        """``end``, and wait until nothing is left."""
        self.end()
        if self._ending is not None:
            await self._ending
        for task in tuple(self._aside):
            task.cancel()
        await asyncio.gather(*self._aside, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the request that asked for it; ``stop`` cancels what is left."""
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return task

    def health(self) -> dict[str, Any]:
        """For /health: ``status`` is ready, starting, failed, degraded or closing."""
        if self.admission.closing:
            return {"status": "closing"}
        if self.failure is not None:
            return {"status": "failed", "error": str(self.failure)}
        if self._client is None or not self._ready.is_set():
            return {"status": "starting"}
        told = dict(self._client.health())
        lanes = told.get("lanes") or {}
        lost = [name for name, state in lanes.items() if state != "ready"]
        return {"status": "degraded" if lost else "ready", "model": self._client.info.model, **told}
