"""What every stage whose work is torch's knows of torch's errors."""

from __future__ import annotations

from typing import TypeVar

import torch

from antiphon.pipelines.stage import Stage

Task = TypeVar("Task")

NO_PRIMITIVE = "could not create a primitive"
"""Of oneDNN on a CPU: its generator of machine code found no memory. It keeps that error, so whatever is of a shape that it
has not met before fails by it from then on, however much memory there is."""


class TorchStage(Stage[Task]):
    """A lost device is fatal: every later call on it fails, whoever asks. Memory that was short once is not."""

    def fatal(self, error: Exception) -> bool:
        return isinstance(error, torch.AcceleratorError) or (isinstance(error, RuntimeError) and NO_PRIMITIVE in str(error))
