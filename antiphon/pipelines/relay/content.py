"""Arrays, tensors and byte strings as flat bytes, and back. numpy's and torch's dtypes and shapes are kept."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.pipelines.errors import WireError
from antiphon.pipelines.relay.ref import BYTES

Flat = NDArray[np.uint8]
TORCH = "torch."


def is_tensor(value: Any) -> bool:
    """Asks without importing torch: where it was never imported there are no tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_piece(value: Any) -> bool:
    """Something that a relay moves."""
    return isinstance(value, np.ndarray | bytes | bytearray | memoryview) or is_tensor(value)


def flatten(value: Any) -> tuple[str, tuple[int, ...], Flat]:
    """dtype, shape, and a flat view of the content (a copy only where it does not lie flat). Raises WireError."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OV":
            raise WireError(f"an array of dtype {value.dtype} cannot travel between processes")
        whole = np.ascontiguousarray(value)
        return value.dtype.str, value.shape, whole.reshape(-1).view(np.uint8) if whole.size else np.empty(0, np.uint8)
    if isinstance(value, bytes | bytearray | memoryview):
        data = np.frombuffer(value, np.uint8)
        return BYTES, (data.size,), data
    if is_tensor(value):
        if value.device.type != "cpu" or value.layout is not sys.modules["torch"].strided:
            raise WireError(f"a {value.layout} tensor on {value.device} cannot travel between processes yet")
        flat = value.detach().contiguous().reshape(-1).view(sys.modules["torch"].uint8)
        return str(value.dtype), tuple(value.shape), flat.numpy()
    raise WireError(f"a {type(value).__name__} is no array, tensor or byte string")


def restore(dtype: str, shape: tuple[int, ...], flat: Flat) -> Any:
    """The piece over ``flat`` without a copy (byte strings are copied). Raises WireError when the sizes disagree."""
    if dtype == BYTES:
        return flat.tobytes()
    if dtype.startswith(TORCH):
        return _tensor(dtype.removeprefix(TORCH), shape, flat)
    try:
        kind = np.dtype(dtype)
        if kind.hasobject or flat.size != kind.itemsize * math.prod(shape):
            raise TypeError("size")
        return flat.view(kind).reshape(shape) if flat.size else np.empty(shape, kind)
    except (TypeError, ValueError) as error:
        raise WireError(f"{flat.size} bytes are no array of {dtype!r} {shape}") from error


def _tensor(name: str, shape: tuple[int, ...], flat: Flat) -> Any:
    import torch

    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype) or flat.size != kind.itemsize * math.prod(shape):
        raise WireError(f"{flat.size} bytes are no tensor of {name!r} {shape}")
    return torch.from_numpy(flat).view(kind).reshape(shape) if flat.size else torch.empty(shape, dtype=kind)
