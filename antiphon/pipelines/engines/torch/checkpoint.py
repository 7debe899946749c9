"""A checkpoint folder in safetensors: each stage reads only its own tensors, by prefix, onto its own device.

The published layout of mixture-of-experts models has one tensor per expert and projection
(``...experts.7.gate_proj.weight``); transformers from version 5 on packs them (``...experts.gate_up_proj`` [E, 2I, H],
``...experts.down_proj`` [E, H, I]). Both are read; packing is done straight into the target tensor.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from antiphon.pipelines.engines.torch.place import Place
from antiphon.pipelines.errors import WeightError

INDEX = "model.safetensors.index.json"
_NAMED = 4
"""How many names an error shows before it counts the rest."""


class Checkpoint:
    """The names of a folder and the files that hold them. Raises WeightError when a shard is missing or unreadable."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise WeightError(f"model folder {str(self.folder)!r} does not exist")
        self._opened: dict[str, Any] = {}
        self.files: Mapping[str, str] = self._map()

    def _map(self) -> dict[str, str]:
        index = self.folder / INDEX
        if index.is_file():
            try:
                mapped = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise WeightError(f"{INDEX} of {self.folder.name!r} is not a safetensors index") from error
            if not isinstance(mapped, dict) or not all(isinstance(shard, str) for shard in mapped.values()):
                raise WeightError(f"{INDEX} of {self.folder.name!r} is not a safetensors index: it maps no names to files")
            files: dict[str, str] = mapped
            for shard in sorted(set(files.values())):
                if not (self.folder / shard).is_file():
                    held = [name for name, file in files.items() if file == shard]
                    raise WeightError(f"shard {shard!r} is missing; it holds {_named(held)}")
            return files
        files = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            with _reading(path) as shard_file:
                files.update(dict.fromkeys(shard_file.keys(), path.name))
        if not files:
            raise WeightError(f"model folder {str(self.folder)!r} holds no safetensors files")
        return files

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.files if name.startswith(prefix)]

    def load(self, module: nn.Module, prefixes: Mapping[str, str], place: Place) -> None:
        """Fill ``module``, whose parameters are on the meta device, from the checkpoint.

        ``prefixes`` maps a prefix of the module's parameter names to its prefix in the checkpoint; the longest wins.
        Raises WeightError naming the tensors that are missing, left over under those prefixes, or misshapen.
        """
        wanted = {name: _renamed(name, prefixes) for name, _ in module.named_parameters()}
        problems, used = [], set[str]()
        missing: list[str] = []
        sources: dict[str, list[str]] = {}
        for name, parameter in module.named_parameters():
            found = self._sources(wanted[name], parameter.shape)
            sources[name] = found
            used.update(found)
            missing += [n for n in found if n not in self.files]
        if missing:
            problems.append(f"missing: {_named(missing)}")
        known = {n for prefix in prefixes.values() for n in self.names(prefix)}
        if extra := sorted(known - used):
            problems.append(f"left over: {_named(extra)}")
        if not problems:
            problems += self._fill(module, sources, place)
        if problems:
            raise WeightError(f"checkpoint {self.folder.name!r} does not fit the model; " + "; ".join(problems))
        for owner in module.modules():
            for key, buffer in list(owner.named_buffers(recurse=False)):
                owner._buffers[key] = buffer.to(place.device)
        module.eval().requires_grad_(False)

    def _sources(self, name: str, shape: torch.Size) -> list[str]:
        """The tensors that make the parameter ``name``: itself, or its experts' in the order of packing."""
        if name in self.files or ".experts." not in name:
            return [name]
        stem, _, last = name.rpartition(".")
        projections = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(last)
        if projections is None:
            return [name]
        return [f"{stem}.{expert}.{p}.weight" for expert in range(shape[0]) for p in projections]

    def _fill(self, module: nn.Module, sources: Mapping[str, Sequence[str]], place: Place) -> list[str]:
        misshapen = []
        with ExitStack() as stack:
            opened: dict[str, Any] = {}

            def read(name: str) -> torch.Tensor:
                file = self.files[name]
                if file not in opened:
                    opened[file] = stack.enter_context(_reading(self.folder / file))
                tensor: torch.Tensor = opened[file].get_tensor(name)
                return tensor

            for name, parameter in list(module.named_parameters()):
                owner, _, key = name.rpartition(".")
                value = _assemble(sources[name], parameter.shape, read, place)
                if isinstance(value, str):
                    misshapen.append(value)
                    continue
                setattr(module.get_submodule(owner), key, nn.Parameter(value, requires_grad=False))
        return [f"misshapen: {_named(misshapen)}"] if misshapen else []


def _assemble(names: Sequence[str], shape: torch.Size, read: Callable[[str], torch.Tensor], place: Place) -> torch.Tensor | str:
    """The parameter made of ``names``, or what is wrong with it."""
    if len(names) == 1:
        tensor = read(names[0])
        if tensor.shape != shape:
            return f"{names[0]} is {list(tensor.shape)}, the model wants {list(shape)}"
        # A copy always: the file's mapping must not stay behind a weight that is used for hours.
        return tensor.to(place.device, place.dtype, copy=True)
    packed = torch.empty(shape, device=place.device, dtype=place.dtype)
    per_expert = len(names) // shape[0]
    rows = shape[1] // per_expert
    for i, name in enumerate(names):
        part = read(name)
        where = packed[i // per_expert, (i % per_expert) * rows : (i % per_expert + 1) * rows]
        if part.shape != where.shape:
            return f"{name} is {list(part.shape)}, the model wants {list(where.shape)}"
        where.copy_(part)
    return packed


def weight_bytes(module: nn.Module, dtype: torch.dtype) -> int:
    """What the module's parameters will take in ``dtype``; they may be on the meta device."""
    return sum(parameter.numel() for parameter in module.parameters()) * dtype.itemsize


_building = threading.Lock()


@contextmanager
def unallocated() -> Iterator[None]:
    """Modules built inside get their parameters on the meta device, but real buffers (tables computed at construction).

    ``torch.device("meta")`` would lose the tables, which no checkpoint holds.
    """
    with _building:
        original = nn.Module.register_parameter
        builder = threading.get_ident()

        def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
            if param is not None and threading.get_ident() == builder:
                param = nn.Parameter(param.detach().to("meta"), requires_grad=False)
            original(self, name, param)

        nn.Module.register_parameter = register  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.register_parameter = original  # type: ignore[method-assign]


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise WeightError(f"{path.name!r} is not a readable safetensors file: {error}") from error


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for prefix in sorted(prefixes, key=len, reverse=True):
        if name.startswith(prefix):
            return prefixes[prefix] + name[len(prefix) :]
    raise WeightError(f"no prefix of the checkpoint is declared for parameter {name!r}")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
