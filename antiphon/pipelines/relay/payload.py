"""A stage's payload as msgpack, and back: plain values, containers, msgspec Structs, and arrays lifted out by a relay.

Nothing is pickled, and what comes out has the types that went in (a tuple stays a tuple). A Struct travels as the name of
its class and its fields; a name is looked up, never guessed: it must be a Struct of a package that the pipeline declares.
Fields typed ``Any`` inside a Struct carry plain msgpack values only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.relay.content import is_piece, is_tensor
from antiphon.pipelines.relay.ref import Kind, Ref
from antiphon.pipelines.relay.relays import Inline, got
from antiphon.pipelines.relay.segments import Attached

Ext = msgspec.msgpack.Ext
TUPLE, SET, FROZENSET, STRUCT, LARGE_STRUCT, PIECE, SCALAR, BYTEARRAY = range(1, 9)
SHARED_MIN = 32 * 1024
"""Bytes from which a piece is worth a slot: below, the copies through a socket cost less than a slot's bookkeeping."""
OWN = ("antiphon",)


class Registry:
    """Struct classes by the name they travel under, ``module:Name``. ``packages``: whose modules may be asked."""

    def __init__(self, packages: Iterable[str] = OWN) -> None:
        self.packages = frozenset(p.partition(".")[0] for p in packages) | set(OWN)
        self._names: dict[type, bytes] = {}
        self._classes: dict[bytes, type[msgspec.Struct]] = {}

    def name(self, cls: type) -> bytes:
        """Raises WireError for a class that a reader could not find by its name."""
        found = self._names.get(cls)
        if found is None:
            found = f"{cls.__module__}:{cls.__qualname__}".encode()
            if self.find(found) is not cls or len(found) > 255:
                raise WireError(f"{found.decode()} cannot be found by its name")
            self._names[cls] = found
        return found

    def find(self, name: bytes) -> type[msgspec.Struct]:
        found = self._classes.get(name)
        if found is None:
            module_name, _, qualname = name.decode().partition(":")
            if module_name.partition(".")[0] not in self.packages:
                raise WireError(f"{module_name} is of no package of this pipeline")
            try:
                module = sys.modules.get(module_name) or importlib.import_module(module_name)
            except ImportError as error:
                raise WireError(f"no module {module_name}") from error
            cls = getattr(module, qualname, None)
            if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
                raise WireError(f"{module_name}:{qualname} is no Struct of a module")
            found = self._classes[name] = cls
        return found


class Packer:
    """Of one thread, towards one process. ``shared`` puts a large piece (None: everything inline)."""

    def __init__(self, registry: Registry, shared: Callable[[Any], Ref] | None) -> None:
        self._registry = registry
        self._shared = shared
        self._inline = Inline().put
        self._mode: Kind | None = None
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._field)

    def pack(self, value: Any, mode: Kind | None = None) -> Any:
        """A value that msgspec encodes as it is. ``mode`` forces a relay. Raises WireError naming the type."""
        self._mode = mode
        try:
            return self._pack(value)
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError) as error:
            raise WireError(f"a {type(value).__name__} cannot travel: {type(error).__name__}") from error

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            if not -(1 << 63) <= value < 1 << 64:
                raise WireError("an int of more than 64 bits cannot travel")
            return value
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if kind is tuple:
            return Ext(TUPLE, self._encoder.encode([self._pack(v) for v in value]))
        if kind is list:
            return [self._pack(v) for v in value]
        if kind is dict:
            return {self._pack(k): self._pack(v) for k, v in value.items()}
        if kind is bytes and len(value) < SHARED_MIN and self._mode != "shared":
            return value
        if kind is bytearray:
            return Ext(BYTEARRAY, bytes(value))
        if kind in (set, frozenset):
            return Ext(SET if kind is set else FROZENSET, self._encoder.encode([self._pack(v) for v in value]))
        if isinstance(value, np.generic):
            return Ext(SCALAR, self._encoder.encode(self._inline(np.asarray(value))))
        if is_piece(value):
            return self._piece(value)
        raise WireError(f"a {kind.__name__} cannot travel between processes: make it a msgspec Struct")

    def _piece(self, value: Any) -> Ext:
        nbytes = value.nbytes if isinstance(value, np.ndarray | memoryview) or is_tensor(value) else len(value)
        return Ext(PIECE, self._encoder.encode(self._put(value, nbytes)))

    def _put(self, value: Any, nbytes: int) -> Ref:
        if self._shared is None or self._mode == "inline" or (self._mode is None and nbytes < SHARED_MIN):
            return self._inline(value)
        return self._shared(value)

    def _struct(self, value: msgspec.Struct) -> Ext:
        name = self._registry.name(type(value))
        body = self._encoder.encode(value)
        if len(body) < SHARED_MIN or self._shared is None or self._mode == "inline":
            return Ext(STRUCT, bytes((len(name),)) + name + body)
        return Ext(LARGE_STRUCT, bytes((len(name),)) + name + self._encoder.encode(self._shared(body)))

    def _field(self, value: Any) -> Any:
        """A field of a Struct that msgspec does not know."""
        if isinstance(value, np.generic):
            return value.item()
        if is_piece(value):
            return self._piece(value)
        raise WireError(f"a {type(value).__name__} in a Struct cannot travel between processes")


class Unpacker:
    """Of one thread. ``hook`` is the ``ext_hook`` of a decoder of messages."""

    def __init__(self, registry: Registry, attached: Attached) -> None:
        self._registry = registry
        self._attached = attached
        self._any = msgspec.msgpack.Decoder(ext_hook=self.hook)
        self._ref = msgspec.msgpack.Decoder(Ref)
        self._structs: dict[bytes, msgspec.msgpack.Decoder[Any]] = {}

    def hook(self, code: int, data: memoryview) -> Any:
        """Raises WireError; msgspec lets it through."""
        try:
            return self._unpack(code, data)
        except (msgspec.DecodeError, IndexError, UnicodeDecodeError, TypeError) as error:
            raise WireError(f"a payload of kind {code} cannot be read: {type(error).__name__}") from error

    def _unpack(self, code: int, data: memoryview) -> Any:
        if code == STRUCT:
            cut = 1 + data[0]
            return self._struct(bytes(data[1:cut])).decode(data[cut:])
        if code == PIECE:
            return got(self._ref.decode(data), self._attached)
        if code == TUPLE:
            return tuple(self._any.decode(data))
        if code == LARGE_STRUCT:
            cut = 1 + data[0]
            body = got(self._ref.decode(data[cut:]), self._attached)
            return self._struct(bytes(data[1:cut])).decode(body)
        if code == SCALAR:
            return got(self._ref.decode(data), self._attached)[()]
        if code == SET:
            return set(self._any.decode(data))
        if code == FROZENSET:
            return frozenset(self._any.decode(data))
        if code == BYTEARRAY:
            return bytearray(data)
        raise WireError(f"a payload of unknown kind {code}")

    def _struct(self, name: bytes) -> msgspec.msgpack.Decoder[Any]:
        decoder = self._structs.get(name)
        if decoder is None:
            cls = self._registry.find(name)
            decoder = self._structs[name] = msgspec.msgpack.Decoder(cls, dec_hook=_typed, ext_hook=self.hook)
        return decoder


def _typed(wanted: type, value: Any) -> Any:
    """A field of a type that msgspec does not know: msgspec itself checks the class of what is returned."""
    if isinstance(value, np.ndarray) or is_tensor(value):
        return value
    raise WireError(f"a field of type {wanted} holds a {type(value).__name__}")
