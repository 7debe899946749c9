"""All that one process needs to talk to the others: its inbox, its links, its shared memory. Opened and closed whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zmq

from antiphon.pipelines.errors import ConfigError
from antiphon.pipelines.relay.payload import Registry
from antiphon.pipelines.relay.segments import Attached, Pool
from antiphon.pipelines.wire import Links, Reader, descriptor, endpoint, inbox

LONGEST_PATH = 100
"""Bytes that the path of a Unix socket may have, on every system."""


class Sockets:
    """``owner``: the name of this life of this process; ``kinds``: the union of messages that it reads.

    ``inbox`` is read by one thread; ``links`` may be used by all. Raises ConfigError where the system has no room for it.
    """

    def __init__(self, folder: Path, owner: str, kinds: Any, packages: Iterable[str] = ()) -> None:
        if len(endpoint(folder, owner)) - len("ipc://") > LONGEST_PATH:
            raise ConfigError(f"the path of {folder} is too long for sockets; set TMPDIR to a shorter one")
        self.registry = Registry(packages)
        self.attached = Attached(folder)
        self.pool = Pool(folder, owner)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self.inbox = inbox(self.context, folder, owner)
        except zmq.ZMQError as error:
            self.context.destroy(0)
            raise ConfigError(f"no socket in {folder}: {error.strerror}") from error
        self.links = Links(self.context, folder, self.registry, self.pool, self.attached)
        self.reader = Reader(kinds, self.registry, self.attached)

    @property
    def descriptor(self) -> int:
        """For an event loop."""
        return descriptor(self.inbox)

    def peer_gone(self, name: str, owner: str) -> None:
        """That life of that process has ended: its slots are free, nothing is sent to it any more."""
        if self.links.owners.get(name) == owner:
            del self.links.owners[name]
        self.pool.reclaim(owner)
        self.attached.forget(owner)

    def close(self) -> None:
        """When no other thread uses the links any more."""
        self.links.close_here()
        self.inbox.close(0)
        self.context.destroy(0)
