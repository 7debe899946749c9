"""A GPU that is not there: tensors that say they are on ``cuda`` and are computed on the CPU.

What it shows: an operation that mixes devices fails as it would on a GPU, and so does reading a device's tensor as an array.
What it cannot show: kernels, their speed and rounding, streams.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

CPU = torch.device("cpu")
MEMORY = 1 << 40
READINGS = [0]
"""How often numbers were brought from a device: each waits for all that is queued on it."""


class MixedDevices(RuntimeError):
    """One operation was given tensors of several devices."""


class OnGpu(torch.Tensor):
    """A tensor of a device that does not exist; ``held`` has the numbers."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: torch.device) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=device
        )
        made.held = held
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda device type tensor to numpy")

    def __repr__(self, **kwargs: Any) -> str:
        return f"OnGpu({self.held!r}, {self.device})"


class PretendGpu(TorchDispatchMode):
    """For operations that are given no tensor of the device: factories, and copies to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``func`` on the CPU, its results where a GPU would leave them."""
    given = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
    named = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.device)]
    device = _numbered(named[0]) if named else _where(func, args, given)
    wrapped = {id(x.held): x for x in given if isinstance(x, OnGpu)}
    crossed = named and any(x.device != device for x in given)

    def dressed(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if crossed:  # never an alias of what is on the other side
            return OnGpu(x.clone(), device) if device.type == "cuda" else x.clone()
        if id(x) in wrapped:  # in place, or nothing to do
            return wrapped[id(x)]
        return OnGpu(x, device) if device.type == "cuda" else x

    if func.overloadpacket.__name__ == "histc" and not given[0].is_floating_point():  # of integers only a GPU makes one
        return dressed(func(_bare(given[0]).float(), *args[1:], **kwargs).to(given[0].dtype))
    made = func(*tree_map(_bare, args), **tree_map(_bare, kwargs))
    if wrapped and (not isinstance(made, torch.Tensor | tuple | list) or (crossed and device == CPU)):
        READINGS[0] += 1
    return tree_map(dressed, made)


def _numbered(device: torch.device) -> torch.device:
    """``cuda`` is the current device: the first."""
    return torch.device("cuda", 0) if device.type == "cuda" and device.index is None else device


def _bare(x: Any) -> Any:
    if isinstance(x, OnGpu):
        return x.held
    return CPU if isinstance(x, torch.device) else x


def _where(func: Any, args: Any, given: list[torch.Tensor]) -> torch.device:
    """The one device of the operation. Numbers on the CPU go with any, and so do indices and what is copied from."""
    name = func.overloadpacket.__name__
    if name in ("copy_", "index", "index_put", "index_put_", "_index_put_impl_") and given:
        values = [args[2]] if name.startswith(("index_put", "_index_put")) else []
        given = [args[0], *values]
    places = {x.device for x in given if x.dim() or x.device.type != "cpu"}
    if len(places) > 1:
        raise MixedDevices(f"{func}: {', '.join(sorted(str(p) for p in places))}")
    return places.pop() if places else CPU


class EventStub:
    """A fence that passes the second time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def record(self, stream: object) -> None: ...

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 1


def _allow_cuda_tensors() -> None:
    """Let the meta device's guard, which does nothing, stand for CUDA's, which this build has not."""
    guards = 21  # one for each c10::DeviceType
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * guards).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14
    registry[cuda] = registry[meta]


@contextmanager
def pretend_gpus(count: int = 1, here: bool = True) -> Iterator[None]:
    """``count`` devices, on threads that begin meanwhile and (``here``) on this one."""
    generator, tensor, thread = torch.Generator, torch.tensor, threading.Thread.run

    def run(self: threading.Thread) -> None:
        with PretendGpu():
            thread(self)

    def made(data: Any, *, dtype: torch.dtype | None = None, device: Any = CPU) -> torch.Tensor:
        numbers = tree_map(lambda x: x.item() if isinstance(x, OnGpu) else x, data)
        return tensor(numbers, dtype=dtype).to(device)  # torch.tensor's own way to a device goes past the mode

    def on_cpu(device: Any = None) -> torch.Generator:
        return generator()

    _allow_cuda_tensors()
    with pytest.MonkeyPatch.context() as patch:
        # Views of a wrapper cannot be tracked in inference mode.
        patch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad())
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: count)
        patch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        patch.setattr(torch.cuda, "set_device", lambda device: None)
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (MEMORY, MEMORY))
        patch.setattr(torch.cuda, "current_stream", lambda device: None)
        patch.setattr(torch.cuda, "Event", EventStub)
        patch.setattr(threading.Thread, "run", run)
        patch.setattr(torch, "Generator", on_cpu)
        patch.setattr(torch, "tensor", made)
        with PretendGpu() if here else nullcontext():
            yield
