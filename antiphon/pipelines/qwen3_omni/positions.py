"""Three-dimensional positions (time, height, width) of a prompt, by the family's own numbering in transformers."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoePreTrainedModelForConditionalGeneration as Numbering,
)

from antiphon.pipelines.qwen3_omni.payloads import Floats, Ids, Layout


class Positions:
    """Numbers prompts of one config (the thinker's; the talker's ids are the same)."""

    def __init__(self, config: Any) -> None:
        thinker = config.thinker_config
        # What ``get_rope_index`` reads of a model, without the model. The talker's config lacks audio_config, on which
        # transformers 5.24 fails for a prompt with both audio and images: the thinker's serves both.
        self._model: Any = SimpleNamespace(config=thinker, spatial_merge_size=thinker.vision_config.spatial_merge_size)
        self._model.get_llm_pos_ids_for_vision = partial(Numbering.get_llm_pos_ids_for_vision, self._model)

    def number(self, ids: Ids, layout: Layout) -> tuple[Floats, float]:
        """Positions [3, P] and what the next position is ahead of P; fractions where a video's steps of time are."""
        length = len(ids)
        if not (layout.image_grids or layout.video_grids):
            plain = np.arange(length, dtype=np.float32)
            return np.broadcast_to(plain, (3, length)), 0.0
        positions, delta = Numbering.get_rope_index(
            self._model,
            torch.from_numpy(ids)[None],
            torch.tensor(layout.image_grids) if layout.image_grids else None,
            torch.tensor(layout.video_grids) if layout.video_grids else None,
            torch.ones(1, length, dtype=torch.long),
            layout.audio_in_video,
            torch.tensor(layout.audio_frames) if layout.audio_frames else None,
            torch.tensor(layout.seconds_per_grid) if layout.seconds_per_grid else None,
        )
        return positions[:, 0].numpy(), float(delta)
