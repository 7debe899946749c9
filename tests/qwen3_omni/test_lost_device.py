"""An error after which a process is of no use ends it: all that its stages would do fails, and no request would say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from antiphon.pipelines.engines.torch.stage import TorchStage
from antiphon.pipelines.qwen3_omni.code2wav import Code2Wav
from antiphon.pipelines.qwen3_omni.encoders import AudioEncoder, ImageEncoder
from antiphon.pipelines.qwen3_omni.talker import Talker
from antiphon.pipelines.qwen3_omni.thinker import Thinker

STAGES: tuple[type[TorchStage[Any]], ...] = (AudioEncoder, ImageEncoder, Thinker, Talker, Code2Wav)
ERRORS = (
    # CUDA's own documentation calls these "sticky": no call of the process succeeds after one.
    (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), True),
    # torch 2.13 under a limit of the address space, and for ever after it was lifted; in the end the process crashed.
    (RuntimeError("could not create a primitive"), True),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), False),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"), False),
    (MemoryError(), False),
    (ValueError("could not create a primitive"), False),
)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("error", "lost"), ERRORS)
def test_what_no_step_recovers_from_is_fatal(stage: type[TorchStage[Any]], error: Exception, lost: bool) -> None:
    assert stage.__new__(stage).fatal(error) is lost
