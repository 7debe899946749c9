"""Where a stage's tensors live: a device and a dtype; its free memory; and the fence of its last work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from antiphon.pipelines.errors import ConfigError, WeightError
from antiphon.pipelines.stage import Fence
from antiphon.pipelines.threads import granted

GIB = 1 << 30
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Place:
    """A device and the dtype of the weights on it."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, device: str = "cpu", dtype: str = "") -> Place:
        """``dtype`` "" is float32 on a CPU and bfloat16 elsewhere. Raises ConfigError for what torch does not know."""
        try:
            where = torch.device(device)
        except RuntimeError as error:
            raise ConfigError(f"device {device!r} is not one that torch knows") from error
        if where.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError(f"device {device!r}: this torch ({torch.__version__}) sees no CUDA device")
        if where.type == "cuda":
            if (where.index or 0) >= torch.cuda.device_count():
                raise ConfigError(f"device {device!r}: there are {torch.cuda.device_count()} CUDA devices here")
            torch.cuda.set_device(where)  # of this thread, its lane's: some libraries ask for the current one
        name = dtype or ("float32" if where.type == "cpu" else "bfloat16")
        if name not in _DTYPES:
            raise ConfigError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
        if where.type == "cpu":
            # Several stages share the cores; torch's own pool beside them makes every step slower, not faster, unless the
            # operator grants more.
            torch.set_num_threads(granted())
        return cls(where, _DTYPES[name])

    def free_bytes(self) -> int:
        """Memory that can still be allocated on the device; for a CPU, what the kernel calls available."""
        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0])
        return _available_memory()

    def require(self, what: str, weights: int, cache: int = 0) -> None:
        """Raise WeightError, with the numbers, unless ``weights`` + ``cache`` bytes fit in what is free."""
        free = self.free_bytes()
        if weights + cache <= free:
            return
        unused = (
            "; there is a CUDA device here that is not used" if self.device.type == "cpu" and torch.cuda.is_available() else ""
        )
        extra = f" and {cache / GIB:.1f} GiB for its KV cache" if cache else ""
        raise WeightError(
            f"{what} needs {weights / GIB:.1f} GiB for its weights in {str(self.dtype).removeprefix('torch.')}{extra}; "
            f"{self.device} has {free / GIB:.1f} GiB free{unused}"
        )

    def fence(self) -> Fence | None:
        """After all work that this thread has queued on the device; None where work is done when a call returns."""
        if self.device.type != "cuda":
            return None
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return _EventFence(event)


class _EventFence:
    def __init__(self, event: Any) -> None:
        self._event = event

    def done(self) -> bool:
        return bool(self._event.query())


def _available_memory() -> int:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62  # this system does not tell: do not refuse on a guess
